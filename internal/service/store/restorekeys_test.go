// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestRestore_ReportsExporterKeys holds that keys are reported whose rules were narrowed, or that
// got a cluster, since the backup, and that a replaced store whose keys have no rules is compared.
func TestRestore_ReportsExporterKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "backup.db")
	ctx := context.WithoutCancel(t.Context())
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(ctx, opt)
	})
	key := func(description string) string {
		return f.NewExporterKey(func(p *account.APIKeyPatch) { p.Description = &description }).ID
	}
	f.NewExporterKey()
	narrowed, pinned := key("narrowed"), key("pinned")
	storetest.Must(t, store.Backup(ctx, dir, file))
	_, err := f.Store.PatchAPIKey(ctx, account.Caller{AccountID: f.AccountID}, narrowed,
		account.APIKeyPatch{ACL: &[]string{"export:a/*", "bind:*"}})
	storetest.Must(t, err)
	storetest.Must(t, f.Store.PinCluster(ctx, f.AccountID, pinned, "one"))
	storetest.Must(t, f.Store.Close())
	restored, err := store.Restore(ctx, store.Options{DataDir: dir}, file)
	storetest.Must(t, err)
	slices.SortFunc(restored.Changed, func(a, b store.Credential) int {
		return strings.Compare(a.Description, b.Description) // ids of one millisecond have no order
	})
	storetest.Equal(t, "changed", described(restored.Changed), "narrowed,pinned")
	storetest.Equal(t, "rules", fmt.Sprint(restored.Changed[0].Rules), "[exporter export:* bind:*]")

	execute(t, dir, `DELETE FROM api_keys; ALTER TABLE api_keys DROP COLUMN acl;
		ALTER TABLE api_keys DROP COLUMN cluster_uid; PRAGMA user_version = 13`)
	restored, err = store.Restore(ctx, store.Options{DataDir: dir}, file)
	storetest.Must(t, err)
	storetest.Equal(t, "compared with an older schema", fmt.Sprint(restored.Compared, len(restored.Reactivated)),
		"true 3")
	f.Reopen()
}

// TestRestore_ReportsTrustedClusters holds that clusters are reported that are trusted again, or by
// keys that were removed since the backup, and that a replaced store without clusters is compared.
func TestRestore_ReportsTrustedClusters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "backup.db")
	ctx := context.WithoutCancel(t.Context())
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(ctx, opt)
	})
	by := account.Caller{AccountID: f.AccountID}
	gone, changed := f.NewCluster("gone", "k-1"), f.NewCluster("changed", "k-2")
	f.NewCluster("kept", "k-3")
	storetest.Must(t, store.Backup(ctx, dir, file))
	storetest.Must(t, f.Store.DeleteCluster(ctx, by, gone.ID))
	_, err := f.Store.PatchCluster(ctx, by, changed.ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{}})
	storetest.Must(t, err)
	f.NewCluster("new", "k-4")
	storetest.Must(t, f.Store.Close())
	restored, err := store.Restore(ctx, store.Options{DataDir: dir}, file)
	storetest.Must(t, err)
	storetest.Equal(t, "reactivated", described(restored.Reactivated), "gone")
	storetest.Equal(t, "changed", described(restored.Changed), "changed")
	storetest.Equal(t, "unknown", described(restored.Unknown), "new")
	storetest.Equal(t, "rules", fmt.Sprint(restored.Changed[0].Kind, restored.Changed[0].Rules),
		"cluster[issuer:"+account.DefaultIssuer+" key:k-2 operator:fairlead/manager forwarder:fairlead/forwarder "+
			"connect:* exporter:fairlead/exporter export:* bind:*]")
	execute(t, dir, `DROP TABLE cluster_keys; DROP TABLE cluster_subjects; DROP TABLE clusters;
		PRAGMA user_version = 15`)
	restored, err = store.Restore(ctx, store.Options{DataDir: dir}, file)
	storetest.Must(t, err)
	storetest.Equal(t, "compared with an older schema", fmt.Sprint(restored.Compared, len(restored.Reactivated)),
		"true 3")
	f.Reopen()
}

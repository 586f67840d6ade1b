// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// withoutLegs makes of a new store one as version 8 of the schema kept it, but for the version.
const withoutLegs = `DROP TABLE acme; DROP TABLE cluster_keys; DROP TABLE cluster_subjects; DROP TABLE clusters;
	DROP TABLE cluster_ids; ALTER TABLE endpoints DROP COLUMN service_export;
	ALTER TABLE api_keys DROP COLUMN acl; ALTER TABLE api_keys DROP COLUMN cluster_uid;
	DROP INDEX endpoints_of_owner; DROP INDEX endpoints_in_grace;
	CREATE INDEX endpoints_in_grace ON endpoints (online, grace_from); ALTER TABLE endpoints DROP COLUMN owner_cluster;
	ALTER TABLE endpoints DROP COLUMN owner_object; ALTER TABLE endpoints DROP COLUMN owner_uid;
	DROP TABLE access_changes_applied; DROP TABLE access_changes;
	DROP TABLE active_children; ALTER TABLE backends DROP COLUMN active_child; DROP TABLE legs;
	ALTER TABLE tunnel_sessions DROP COLUMN join_hash; ALTER TABLE app_sessions DROP COLUMN last_device;
	ALTER TABLE app_sessions DROP COLUMN last_device_at; ALTER TABLE app_sessions DROP COLUMN device_changed_at;
	DROP INDEX tunnels_by_resume_hash; ALTER TABLE tunnels DROP COLUMN resume_hash;
	ALTER TABLE replicas DROP COLUMN relay_address; ALTER TABLE replicas DROP COLUMN base_url;
	ALTER TABLE replicas DROP COLUMN draining; ALTER TABLE replicas DROP COLUMN address_mac;
	ALTER TABLE store DROP COLUMN own_hosts; DROP TABLE authorities_beside; DROP TABLE authority_reports;
	ALTER TABLE endpoints DROP COLUMN service_labels; ALTER TABLE endpoints DROP COLUMN seal_key;`

// TestOpen_MigratesUnderNoServer holds that a command does not change the schema while a server
// lives, and that a server does, beside other replicas, too.
func TestOpen_MigratesUnderNoServer(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	dir, databaseURL, replicasURL := t.TempDir(), server.URL(t), server.URL(t)
	undo := func(databaseURL string) func() {
		return func() {
			storetest.Must(t, server.Exec(t.Context(), databaseURL,
				withoutLegs+`UPDATE fairlead_schema SET version = 8`))
		}
	}
	for name, c := range map[string]struct {
		server, command store.Options
		undo            func()
	}{
		"sqlite": {store.Options{DataDir: dir}, store.Options{DataDir: dir},
			func() { execute(t, dir, withoutLegs+`PRAGMA user_version = 8`) }},
		"postgres": {store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL},
			store.Options{DatabaseURL: databaseURL}, undo(databaseURL)},
		"replicas": {store.Options{DataDir: t.TempDir(), DatabaseURL: replicasURL,
			Replica: &membership.Replica{ID: "one"}},
			store.Options{DatabaseURL: replicasURL}, undo(replicasURL)},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(o store.Options) error {
				s, err := store.Open(t.Context(), o)
				if err == nil {
					storetest.Must(t, s.Close())
				}
				return err
			}
			lock, err := store.LockServer(t.Context(), c.server)
			storetest.Must(t, err)
			storetest.Must(t, open(c.command))
			c.undo()
			err = open(c.command)
			for _, want := range []string{"schema version 8", "start the server of this version first"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("a command beside a server: %v, want %q", err, want)
				}
			}
			asServer := c.server
			asServer.Lock = lock
			storetest.Must(t, open(asServer))
			storetest.Must(t, open(c.command))
			c.undo()
			storetest.Must(t, lock.Release())
			storetest.Must(t, open(c.command))
			again, err := store.LockServer(t.Context(), c.server) // the command has given the lock back
			storetest.Must(t, err)
			storetest.Must(t, again.Release())
		})
	}
}

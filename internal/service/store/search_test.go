// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// olderUsers makes of a new store one as version 4 of the schema kept it, with users: their texts
// in lower case, without the provider.
const olderUsers = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < %[1]d)
	INSERT INTO app_users (id, account_id, identity_key, provider_name, provider_url, provider_user_id, username, email,
		name, search, provider_search, created_at, last_active, last_login)
	SELECT 'au-' || n, '%[2]s', 'key' || n, 'opa.localhost', 'https://opa.localhost', 'sub' || n, 'user' || n,
		'user' || n || '@example.com', 'Jörg Ødegård ' || n, 'jörg ødegård ' || n, 'opa.localhost', 1, 1, 1 FROM c;
	DROP TABLE write_probes; ALTER TABLE store DROP COLUMN key_check; ALTER TABLE store DROP COLUMN timeline;
	ALTER TABLE store DROP COLUMN mode; ALTER TABLE store DROP COLUMN compatible_from;
	DROP TABLE replica_beats; DROP TABLE replicas; DROP TABLE authority;`

// TestSearch_FindsUsersOfAnOlderStore holds that a migration folds what is searched, of more rows
// than one batch.
func TestSearch_FindsUsersOfAnOlderStore(t *testing.T) {
	t.Parallel()
	const count = 1203
	dir, server := t.TempDir(), postgres.Server(t)
	databaseURL := server.URL(t)
	for _, engine := range []struct {
		name    string
		options store.Options
		version string
		execute func(text string)
	}{
		{"sqlite", store.Options{DataDir: dir}, `PRAGMA user_version = 4`, func(text string) { execute(t, dir, text) }},
		{"postgres", store.Options{DatabaseURL: databaseURL}, `UPDATE fairlead_schema SET version = 4`,
			func(text string) { storetest.Must(t, server.Exec(t.Context(), databaseURL, text)) }},
	} {
		t.Run(engine.name, func(t *testing.T) {
			older, err := store.Open(t.Context(), engine.options)
			storetest.Must(t, err)
			made, err := older.CreateAccount(t.Context(), "old")
			storetest.Must(t, err)
			storetest.Must(t, older.Close())
			engine.execute(withoutLegs + fmt.Sprintf(olderUsers, count, made.ID) + engine.version)
			s, err := store.Open(t.Context(), engine.options)
			storetest.Must(t, err)
			defer func() { storetest.Must(t, s.Close()) }()
			for query, want := range map[string]int{
				"opa ODEG": 1000, "odegard user1203": 1, "sub1203 au-1203": 1, "": 1000, "none": 0,
			} {
				found, _, err := s.Users(t.Context(), made.ID, account.UserFilter{Query: query},
					account.Page{Limit: 1000})
				storetest.Must(t, err)
				storetest.Equal(t, query, len(found), want)
			}
		})
	}
}

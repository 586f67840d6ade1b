// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"embed"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

const (
	// schemaVersion is the number of the newest file in migrations.
	schemaVersion = 19
	// compatibleFrom is the oldest schema version whose programs can use this one.
	compatibleFrom = 8
	// foldedSearchVersion is the migration after which foldUsers rewrites the searched columns.
	foldedSearchVersion = 5
)

// migrations are SQLite's statements. Identifiers and other columns that are compared or sorted are
// declared COLLATE BINARY.
//
//go:embed migrations/*.sql
var migrations embed.FS

func (d *database) schema() sqldb.Schema {
	return sqldb.Schema{Migrations: migrations, Version: schemaVersion, Tables: []string{"store", "accounts"},
		CompatibleFrom: `SELECT compatible_from FROM store`, Owner: d}
}

// Migrated makes the row of a fresh store, and folds what older ones search.
func (d *database) Migrated(begun sqldb.Tx, version int, fresh bool) error {
	now := d.now()
	switch {
	case version == foldedSearchVersion:
		return foldUsers(begun)
	case version == schemaVersion && fresh:
		// The epoch begins with the clock, so that versions of a store that was lost and made anew
		// are foreign here.
		return begun.Exec(`INSERT INTO store (id, store_id, epoch, compatible_from) VALUES (1, $1, $2, $3)`,
			account.NewID(account.PrefixStore, now), now.Unix(), compatibleFrom)
	}
	return nil
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

// PostgresSchema returns a migration as PostgreSQL runs it.
func PostgresSchema(text string) string { return postgresEngine{}.schema(text) }

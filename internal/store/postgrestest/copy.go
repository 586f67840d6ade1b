// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"fmt"
	"net/url"
	"testing"
)

// Copy keeps the rows of all tables in the schema of a URL that URL has given, as a dump does; PutBack brings them back, whatever was written since.
func (s *Server) Copy(t testing.TB, databaseURL string) {
	t.Helper()
	s.eachTable(t, databaseURL, "CREATE SCHEMA %[1]s_copy", "CREATE TABLE %[1]s_copy.%%1$I AS TABLE %[1]s.%%1$I")
}

// PutBack puts all tables back to what Copy has kept.
func (s *Server) PutBack(t testing.TB, databaseURL string) {
	t.Helper()
	s.eachTable(t, databaseURL, "SET LOCAL session_replication_role = replica", // no foreign keys are looked at
		"DELETE FROM %[1]s.%%1$I; INSERT INTO %[1]s.%%1$I SELECT * FROM %[1]s_copy.%%1$I")
}

// eachTable does one thing first, and then another with each table, in one transaction.
func (s *Server) eachTable(t testing.TB, databaseURL, first, each string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	schema := u.Query().Get("search_path")
	err = s.Exec(t.Context(), s.url(nil), fmt.Sprintf(`DO $do$ DECLARE name text; BEGIN
		`+first+`;
		FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '%[1]s' LOOP EXECUTE format('`+each+`', name); END LOOP;
		END $do$`, schema))
	if err != nil {
		t.Fatal(err)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CheckDatabaseURL returns what is wrong with the URL of a PostgreSQL database, as CodeInvalid; its
// error does not hold the URL.
func CheckDatabaseURL(raw string) error {
	_, _, err := parseDatabaseURL(raw)
	return err
}

// parseDatabaseURL reads the URL and returns a name for the database that holds no password.
func parseDatabaseURL(raw string) (config *pgx.ConnConfig, name string, err error) {
	const field, form = "--database-url", "postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full"
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return nil, "", account.Invalid(field, "(not shown)", "must begin with postgres://, for example "+form+
			"; leave it out for SQLite in --data-dir")
	}
	if !strings.Contains(raw, "target_session_attrs") { // connect to the primary of several hosts
		separator := "?"
		if strings.Contains(raw, "?") {
			separator = "&"
		}
		raw += separator + "target_session_attrs=read-write"
	}
	config, err = pgx.ParseConfig(raw)
	if err != nil { // its text may hold the password
		return nil, "", account.Invalid(field, "(not shown)", "cannot be read: it must look like "+form+
			", with special characters of user and password percent-encoded, a known sslmode, and certificate files "+
			"that can be read")
	}
	parameters := config.RuntimeParams
	config.RuntimeParams = map[string]string{"application_name": "fairlead-server"}
	for _, first := range []string{"application_name", "client_encoding", "options"} { // only a start takes these
		if value, given := parameters[first]; given {
			config.RuntimeParams[first] = value
			delete(parameters, first)
		}
	}
	for parameter, value := range map[string]string{
		"statement_timeout": "25s", "lock_timeout": "10s",
		"idle_in_transaction_session_timeout": "3s", // a paused server must not hold up the others' writes
		// A server that is cut off gives its lock up after half a minute.
		"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		if _, given := parameters[parameter]; !given {
			parameters[parameter] = value
		}
	}
	config.AfterConnect = setParameters(parameters)
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, 5*time.Second)
	where := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	if strings.HasPrefix(config.Host, "/") {
		where = config.Host
	}
	return config, fmt.Sprintf("postgres://%s@%s/%s", config.User, where, config.Database), nil
}

// setParameters returns what sets the parameters of a new connection. Poolers refuse most of them at
// the start of a connection.
func setParameters(parameters map[string]string) pgconn.AfterConnectFunc {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	calls := []string{"set_config('standard_conforming_strings', 'on', false)"}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		calls = append(calls, fmt.Sprintf("set_config(%s, %s, false)", quote(name), quote(parameters[name])))
	}
	statement := "SELECT " + strings.Join(calls, ", ")
	return func(ctx context.Context, c *pgconn.PgConn) error {
		_, err := c.Exec(ctx, statement).ReadAll()
		return err
	}
}

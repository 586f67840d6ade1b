// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// PgBouncer starts PgBouncer before the server, with the pool mode "session" or "transaction", and
// returns a function that leads a URL of the server through it. The test is skipped without
// PgBouncer, unless FAIRLEAD_REQUIRE_POSTGRES is set.
func (s *Server) PgBouncer(t testing.TB, mode string) (through func(databaseURL string) string) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // not in the PATH of all users
	}
	if err != nil {
		SkipWithout(t, fmt.Errorf("%w; this test needs the package pgbouncer, too", ErrMissing))
	}
	dir, err := os.MkdirTemp("", "fairlead-pgbouncer-") //nolint:usetesting // a socket's path is short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users")
	text := fmt.Sprintf("[databases]\n* = host=%s\n[pgbouncer]\nlisten_addr =\nlisten_port = 5432\n"+
		"unix_socket_dir = %s\nauth_type = trust\nauth_file = %s\npool_mode = %s\ndefault_pool_size = 40\n", s.dir, dir,
		users, mode)
	err = errors.Join(os.WriteFile(config, []byte(text), 0o600), os.WriteFile(users, []byte(`"fairlead" ""`), 0o600))
	if s.as != nil {
		for _, path := range []string{dir, config, users} {
			err = errors.Join(err, os.Chown(path, int(s.as.Uid), int(s.as.Gid)))
		}
	}
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), program, "--quiet", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	through = func(databaseURL string) string {
		u, err := url.Parse(databaseURL)
		must.Succeed(t, err)
		query := u.Query()
		query.Set("host", dir)
		u.RawQuery = query.Encode()
		return u.String()
	}
	wait.Until(t, "PgBouncer", func() bool {
		conn, err := pgx.Connect(t.Context(), through(s.AdminURL()))
		return err == nil && conn.Close(t.Context()) == nil
	})
	return through
}

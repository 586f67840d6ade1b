// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package postgrestest owns throwaway PostgreSQL servers for tests: a data directory of their own,
// a unix socket, no port. Tests come in; what they get is a server's URL for a schema of their own,
// and the means to stop, kill and start it. The programs are found in PATH or where Debian keeps
// them.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Required is the environment variable that forbids to skip tests because PostgreSQL is missing.
const Required = "FAIRLEAD_REQUIRE_POSTGRES"

// startTimeout bounds how long a server may take to answer; that of a loaded machine recovers
// slowly.
const startTimeout = 2 * time.Minute

// Server is a PostgreSQL server. Its methods may be called from one goroutine at a time, URL from
// many.
type Server struct {
	bin, dir string
	as       *syscall.Credential // nil for the tests' own user
	settings []string
	process  *os.Process
	ended    chan error // what Wait returned
	schemas  atomic.Int64
}

// Start makes and starts a server with these settings ("fsync=off"). Without PostgreSQL's programs
// the error is ErrMissing.
func Start(settings ...string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings, as: as}
	return s.create("initdb", "--no-sync", "--auth=trust", "--username=fairlead", "--encoding=UTF8",
		"--locale=C.UTF-8", "--pgdata")
}

// create makes the server's directory and, by a program whose last argument it is, the data in it,
// and starts the server.
func (s *Server) create(program string, args ...string) (_ *Server, err error) {
	if s.dir, err = os.MkdirTemp("", "fairlead-pg-"); err != nil {
		return nil, err
	}
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, errors.Join(err, s.Remove())
		}
	}
	if out, err := s.command(program, append(args, s.data())...).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("making a database cluster: %w: %s", err, out), s.Remove())
	}
	if err := s.Up(); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// ErrMissing reports that PostgreSQL is not installed.
var ErrMissing = errors.New(
	"PostgreSQL is not installed: no initdb in PATH or /usr/lib/postgresql; install the package postgresql")

func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs are beside the file, not beside the link
		return filepath.Dir(path), err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrMissing
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// unprivileged returns a user that PostgreSQL runs as when the tests run as root, which it refuses.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("running PostgreSQL: there is neither a user postgres nor a user nobody")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// Up starts the server, which is down, and waits until it answers.
func (s *Server) Up() error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c",
		"shared_buffers=32MB", "-c", "log_min_messages=fatal"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	if err := s.run(s.command("postgres", args...)); err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url(nil))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case err := <-s.ended:
			s.process = nil
			return fmt.Errorf("PostgreSQL has ended at its start: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for PostgreSQL: %w", err)
		case <-tick.C:
		}
	}
}

// Down stops the server as its administrator does: connections are ended, what is committed is
// kept.
func (s *Server) Down() error { return s.end(syscall.SIGINT) }

// Crash stops the server at once; it recovers at the next start.
func (s *Server) Crash() error { return s.end(syscall.SIGQUIT) }

// Kill ends the server's first process without its knowledge, as the kernel does for want of memory.
// The others end by themselves, and it recovers at the next start.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// run starts the program on a thread that lives as long as the program: Pdeathsig is about the
// thread.
func (s *Server) run(cmd *exec.Cmd) error {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.ended = cmd.Process, ended
	return nil
}

func (s *Server) end(signal syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	err := <-s.ended
	s.process = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) && signal != syscall.SIGINT {
		return nil
	}
	return err
}

// Remove stops the server and deletes its data.
func (s *Server) Remove() error {
	return errors.Join(s.Crash(), os.RemoveAll(s.dir))
}

func (s *Server) url(query url.Values) string {
	if query == nil {
		query = url.Values{}
	}
	query.Set("host", s.dir)
	return (&url.URL{Scheme: "postgres", User: url.User("fairlead"), Path: "/postgres",
		RawQuery: query.Encode()}).String()
}

// AdminURL returns a URL for statements about the whole server.
func (s *Server) AdminURL() string { return s.url(nil) }

// URL makes an empty schema and returns a URL in which it is the only one.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	schema := fmt.Sprintf("t%d", s.schemas.Add(1))
	must.Succeed(t, s.Exec(t.Context(), s.url(nil), "CREATE SCHEMA "+schema))
	return s.url(url.Values{"search_path": {schema}})
}

// Exec runs statements behind the store's back.
func (s *Server) Exec(ctx context.Context, databaseURL, statements string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statements)
	return errors.Join(err, conn.Close(ctx))
}

// Shared is a server that the tests of a package share; it starts with the first that wants it.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Server returns the server. A test is skipped when there is no PostgreSQL, unless
// FAIRLEAD_REQUIRE_POSTGRES is set.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = Start("fsync=off", "synchronous_commit=off", "full_page_writes=off") })
	SkipWithout(t, s.err)
	return s.server
}

// SkipWithout ends the test when err, of Start, is one.
func SkipWithout(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, ErrMissing) && os.Getenv(Required) == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// Main runs the tests of a package that uses the server, and ends it. It is what
// goleak.VerifyTestMain wants.
type Main struct {
	M      *testing.M
	Shared *Shared
}

// Run implements goleak.TestingM.
func (m Main) Run() int {
	code := m.M.Run()
	if m.Shared.server == nil {
		return code
	}
	if err := m.Shared.server.Remove(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"bytes"
	"net/url"
	"runtime"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Dump returns what pg_dump writes, uncompressed, of the schema of a URL that URL has given.
func (s *Server) Dump(t testing.TB, databaseURL string) []byte {
	t.Helper()
	return s.tool(t, databaseURL, nil, "pg_dump", "--format=custom", "--compress=0")
}

// Restore gives pg_restore what Dump returned: the schema is then as it was.
func (s *Server) Restore(t testing.TB, databaseURL string, dump []byte) {
	t.Helper()
	s.tool(t, databaseURL, dump, "pg_restore", "--clean", "--if-exists", "--exit-on-error")
}

func (s *Server) tool(t testing.TB, databaseURL string, in []byte, program string, args ...string) []byte {
	t.Helper()
	u, err := url.Parse(databaseURL)
	must.Succeed(t, err)
	runtime.LockOSThread() // the program ends with the thread that has started it
	defer runtime.UnlockOSThread()
	cmd := s.command(program, append(args, "--schema="+u.Query().Get("search_path"), "--dbname="+s.url(nil))...)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, stderr.String())
	}
	return out.Bytes()
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// haproxyConfig is one of three relays: it listens, and goes on to the next.
const haproxyConfig = `global
  maxconn 4000
  nbthread %d
  ssl-server-verify required
defaults
  mode %s
  timeout connect 10s
  timeout client 60s
  timeout server 60s
%sfrontend in
  bind %s
  default_backend out
backend out
  server next %s
`

// haproxyModes are the modes and what their sections have besides.
var haproxyModes = map[string]string{"tcp": "", "http": "  timeout http-keep-alive 60s\n  http-reuse always\n"}

// startHAProxy starts the chain with TLS between its parts, or returns nil without the program.
func startHAProxy(b *testing.B, mode, keys, upstream string) *chain {
	b.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		return nil
	}
	dir := b.TempDir()
	pem := filepath.Join(dir, "key.pem")
	must.Succeed(b, os.WriteFile(pem, []byte(keys), 0o600))
	c := &chain{name: haproxy}
	next := strings.TrimPrefix(upstream, "http://")
	for i, part := range []string{"agent", "edge", "forwarder"} {
		addr, err := freeaddr.Find()
		must.Succeed(b, err)
		bind, server := addr+" ssl crt "+pem+" ssl-min-ver TLSv1.3",
			next+" ssl verify required sni str(bench) verifyhost bench ca-file "+pem
		if part == "agent" {
			server = next
		}
		if part == "forwarder" {
			bind = addr
		}
		config := filepath.Join(dir, part+".cfg")
		text := fmt.Appendf(nil, haproxyConfig, 2, mode, haproxyModes[mode], bind, server)
		must.Succeed(b, os.WriteFile(config, text, 0o600))
		cmd := exec.Command(program, "-db", "-f", config)
		cmd.Stderr = os.Stderr
		must.Succeed(b, cmd.Start())
		ended := make(chan error, 1)
		go func() {
			ended <- cmd.Wait()
			close(ended)
		}()
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		if err := awaitAddr(addr, ended); err != nil {
			b.Fatalf("haproxy %d: %v", i, err)
		}
		c.parts = append(c.parts, &process{part: part, pid: cmd.Process.Pid})
		next = addr
	}
	c.tcp, c.http = next, next
	return c
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestInspect_ServesWhileAgentRuns runs an agent without a terminal.
func TestInspect_ServesWhileAgentRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want bool
	}{
		"default": {nil, false}, "off": {[]string{"--inspect=false", "--inspect-addr", "127.0.0.1:0"}, false},
		"address": {[]string{"--inspect-addr", "127.0.0.1:0"}, true}, "on": {[]string{"--inspect"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t, nil, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, r := linePipe(t)
			var errOut bytes.Buffer
			env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
			code := make(chan int, 1)
			go func() {
				code <- run(ctx,
					append([]string{"http", "8080", "--url", "http://a.b", "--server", svc.url, "--ca-file",
						svc.caFile}, c.args...),
					console{in: strings.NewReader(""), out: w, err: &errOut, env: func(k string) string {
						return env[k]
					}})
			}()
			address := ""
			for lines := bufio.NewScanner(r); lines.Scan() && !strings.HasPrefix(lines.Text(), "Session"); {
				if url, ok := strings.CutPrefix(lines.Text(), "Inspector   "); ok {
					address = url
				}
			}
			if served := address != ""; served != c.want {
				t.Errorf("inspector at %q, want one: %t", address, c.want)
			}
			if c.want {
				res, err := http.Get(address + "/api/tunnels")
				must.Succeed(t, err)
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if !strings.Contains(string(body), `"public_url": "http://a.b"`) {
					t.Errorf("%s", body)
				}
			}
			cancel()
			if c := <-code; c != 0 || errOut.Len() > 0 {
				t.Errorf("code %d, %q", c, errOut.String())
			}
			if address == "" {
				return
			}
			if conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://")); err == nil {
				_ = conn.Close()
				t.Error("the inspector outlives the agent")
			}
		})
	}
}

func TestInspect_RefusesBadAddresses(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = taken.Close() }()
	for address, want := range map[string]string{
		"4040":                  `fairlead: --inspect-addr "4040": must be HOST:PORT, e.g. 127.0.0.1:4040`,
		taken.Addr().String():   `the port is in use; give another one`,
		"203.0.113.1:4040":      `--inspect-addr "203.0.113.1:4040": give an address of this machine, e.g. `,
		"127.0.0.1:99999":       "must be HOST:PORT",
		"127.0.0.1:http://evil": "must be HOST:PORT",
	} {
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", "http", "8080", "--url",
			"http://a.b",
			"--server", svc.url, "--ca-file", svc.caFile, "--inspect-addr", address)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", address, r)
		}
	}
	r := fairlead(t, nil, "", "tcp", "5432", "--url", "tcp://a.b:5432", "--inspect")
	if r.code != exitUsage || !strings.Contains(r.err, "--inspect") {
		t.Errorf("fairlead tcp: %+v", r)
	}
}

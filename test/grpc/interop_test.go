// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// interopProgram names the program of test/interop.
const interopProgram = "FAIRLEAD_INTEROP"

// cases are those of gRPC's interoperability tests that pass without anything between client and
// server.
var cases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
	"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response",
	"status_code_and_message", "special_status_message", "custom_metadata",
	"unimplemented_method", "unimplemented_service", "rpc_soak", "channel_soak", "orca_per_rpc",
}

// route is the client's way to a server.
type route struct {
	name, addr, authority string
	ca                    string // file; "" = without TLS
}

func TestEdge_PassesGRPCInterop(t *testing.T) {
	t.Parallel()
	program := os.Getenv(interopProgram)
	if program == "" {
		t.Skip("make interop builds gRPC's interoperability tests, and " + interopProgram + " names them")
	}
	c := startChain(t)
	for name, upstream := range map[string]*upstream{"h2c": {scheme: "http"}, "TLS": {scheme: "https"}} {
		upstream.start(t, program, c)
		direct := route{"direct", upstream.addr, "localhost", ""}
		if upstream.scheme == "https" {
			direct.ca = c.upstreamCert
		}
		for _, w := range append(c.routes(t, name, upstream), direct) {
			t.Run(w.name+" to "+name, func(t *testing.T) {
				t.Parallel()
				for _, test := range cases {
					t.Run(test, func(t *testing.T) {
						t.Parallel()
						runCase(t, program, w, test)
					})
				}
			})
		}
	}
}

// TestEdge_AnswersGRPCClients checks what gRPC's own client makes of our answers.
func TestEdge_AnswersGRPCClients(t *testing.T) {
	t.Parallel()
	program := os.Getenv(interopProgram)
	if program == "" {
		t.Skip("make interop builds gRPC's interoperability tests, and " + interopProgram + " names them")
	}
	c := startChain(t)
	for _, w := range c.routes(t, "down", &upstream{scheme: "http", addr: closedport.Reserve(t)}) {
		want := "code = Unavailable desc = ERR_FL_3002: "
		if out, err := call(t, program, w, "empty_unary"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s, without an upstream: %v\n%s", w.name, err, out)
		}
		w.authority = "other.example.com"
		want = "code = Unavailable desc = ERR_FL_3003: There is nothing at this address."
		if w.name == "kubernetes" {
			want = "code = PermissionDenied desc = ERR_FL_3030: "
		}
		if out, err := call(t, program, w, "empty_unary"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s, of another host: %v\n%s", w.name, err, out)
		}
	}
}

// runCase runs the client with one case.
func runCase(t *testing.T, program string, w route, test string) {
	t.Helper()
	if out, err := call(t, program, w, test); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// call runs the client with one case and returns what it prints.
func call(t *testing.T, program string, w route, test string) (string, error) {
	t.Helper()
	inputs.Record(t, "../interop")
	args := []string{"call", "-addr", w.addr, "-authority", w.authority}
	if w.ca != "" {
		args = append(args, "-ca", w.ca)
	}
	out, err := exec.CommandContext(servicetest.Context(t), program, append(args, test)...).CombinedOutput()
	return string(out), err
}

// upstream is a server of the interoperability tests.
type upstream struct{ scheme, addr string }

func (u *upstream) start(t *testing.T, program string, c *chain) {
	t.Helper()
	cmd := exec.Command(program, "serve")
	if u.scheme == "https" {
		cmd.Args = append(cmd.Args, "-tls-cert", c.upstreamCert, "-tls-key", c.upstreamKey)
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // the server ends with its standard input
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Error("the server of the interoperability tests:", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must.Succeed(t, err)
	u.addr = strings.TrimSpace(line)
}

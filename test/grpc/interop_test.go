// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

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

// route is how the client reaches a server.
type route struct {
	name, addr, authority string
	tls                   bool
}

func TestEdge_PassesGRPCInterop(t *testing.T) {
	t.Parallel()
	program := os.Getenv(interopProgram)
	if program == "" {
		t.Skip("make interop builds gRPC's interoperability tests, and " + interopProgram + " names them")
	}
	c := startChain(t)
	for name, upstream := range map[string]*upstream{"h2c": {scheme: "http"}, "TLS": {scheme: "https"}} {
		upstream.start(t, program, c.certs)
		direct := route{"direct", upstream.addr, "localhost", upstream.scheme == "https"}
		for _, w := range append(c.routes(t, name, upstream), direct) {
			t.Run(w.name+" to "+name, func(t *testing.T) {
				t.Parallel()
				for _, test := range cases {
					t.Run(test, func(t *testing.T) {
						t.Parallel()
						call(t, program, w, c.certs, test)
					})
				}
			})
		}
	}
}

// call runs one case.
func call(t *testing.T, program string, w route, certs certificates, test string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := []string{"call", "-addr", w.addr, "-authority", w.authority}
	if w.tls {
		args = append(args, "-ca", certs.cert)
	}
	if out, err := exec.CommandContext(ctx, program, append(args, test)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// upstream is a server of the interoperability tests.
type upstream struct{ scheme, addr string }

func (u *upstream) start(t *testing.T, program string, certs certificates) {
	t.Helper()
	cmd := exec.Command(program, "serve")
	if u.scheme == "https" {
		cmd.Args = append(cmd.Args, "-tls-cert", certs.cert, "-tls-key", certs.key)
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // its sign to end
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Error("the server of the interoperability tests:", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u.addr = strings.TrimSpace(line)
}

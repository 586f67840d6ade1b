// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// service is a tunnel server that answers every hello and every bind as its test configures.
type service struct {
	url         string
	caFile      string
	fingerprint string

	helloErr, bindErr error
	hellos            chan tunnel.Hello
	bound             chan *tunnel.Session
	binds             chan tunnel.Bind
	unbound           chan string
	holdGoodbye       atomic.Bool // unbinds are answered only after release was closed
	release           chan struct{}
}

// writeCA writes the certificate of a test server, which is its own authority, and returns the
// file's path.
func writeCA(t *testing.T) string {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	defer https.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newService(t *testing.T, helloErr, bindErr error) *service {
	t.Helper()
	https := httptest.NewTLSServer(nil) // lends its certificate for 127.0.0.1
	defer https.Close()
	svc := &service{caFile: writeCA(t), fingerprint: trust.Fingerprint(https.Certificate()), helloErr: helloErr,
		bindErr: bindErr,
		hellos:  make(chan tunnel.Hello, 100), bound: make(chan *tunnel.Session, 100),
		binds:   make(chan tunnel.Bind, 100),
		unbound: make(chan string, 100), release: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	svc.url = "https://" + ln.Addr().String()
	config := &tls.Config{Certificates: https.TLS.Certificates, NextProtos: []string{tunnel.ALPN},
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	server := tunnel.NewServer(tunnel.ServerConfig{Handler: svc})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = raw.Close() }()
				stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
				defer stop()
				conn := tls.Server(tunnel.TuneConn(raw), config)
				if conn.HandshakeContext(ctx) == nil {
					_ = server.ServeConn(ctx, conn)
				}
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = ln.Close(); wg.Wait() })
	return svc
}

func (svc *service) Hello(_ context.Context, h tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	svc.hellos <- h
	return tunnel.Welcome{SessionID: "ts-1", ServerVersion: "1.2.3"}, svc.helloErr
}

// Join refuses connections of other replicas' sessions: there are none.
func (*service) Join(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession,
		Msg: "the session has ended: begin a new one"}
}

func (svc *service) Up(*tunnel.Session) {}

func (*service) Renew(context.Context, *tunnel.Session, string) (time.Time, error) {
	return time.Time{}, &tunnel.Error{Code: tunnel.CodeInvalid, Msg: "there is no token to renew"}
}

func (svc *service) Bind(_ context.Context, s *tunnel.Session, b tunnel.Bind) (tunnel.Bound, error) {
	svc.binds <- b
	if svc.bindErr != nil {
		return tunnel.Bound{}, svc.bindErr
	}
	svc.bound <- s
	if b.Binding == account.BindingPublic {
		return tunnel.Bound{EndpointID: "ep-1", URL: b.URL, ListenerURL: b.URL + ":8080", Unreachable: "no way"}, nil
	}
	return tunnel.Bound{EndpointID: "ep-1", URL: b.URL}, nil
}

func (svc *service) Unbind(_ context.Context, _ *tunnel.Session, id string) error {
	svc.unbound <- id
	if svc.holdGoodbye.Load() {
		<-svc.release
	}
	return nil
}

func (svc *service) Stream(_ context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	_ = st.Refuse(tunnel.RefusedForbidden)
}

func (svc *service) OnResponsiveness(*tunnel.Session) {}

func (svc *service) OnRequestLine(*tunnel.Session, tunnel.RequestLine) {}

func (svc *service) Down(*tunnel.Session, error) {}

// linePipe hands what a command prints to a test that reads it as it comes.
func linePipe(t *testing.T) (io.Writer, io.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return w, r
}

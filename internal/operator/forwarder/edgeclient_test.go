// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestEdgeClient_LogsCauseOnce checks that an outage, which has one cause and many attempts, is
// logged once.
func TestEdgeClient_LogsCauseOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := newEdgeClient(&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 0, &broadcaster{},
		func(tunnel.RequestLine) {})
	for _, text := range []string{
		"greeting edge:8443: the tunnel's connection broke: read tcp 10.244.0.5:40001->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
		"greeting edge:8443: the tunnel's connection broke: read tcp 10.244.0.5:40002->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
		"greeting edge:8443: the tunnel's connection broke: read tcp [fd00::5]:40003->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
	} {
		e.recordError(errors.New(text))
	}
	if n := strings.Count(log.String(), "no session"); n != 1 ||
		!strings.Contains(log.String(), "read tcp 10.99.0.2:8443: read: connection reset") {
		t.Errorf("%d lines: %s", n, &log)
	}
}

// TestEdgeClient_RenewsServiceAccountToken checks that the session of a forwarder outlives its token:
// the next one is presented on it.
func TestEdgeClient_RenewsServiceAccountToken(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) { _ = st.Refuse(tunnel.RefusedForbidden) })
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, next := "e30.eyJleHAiOjF9.MQ", "e30.eyJleHAiOjF9.Mg"
	write(first)
	c := newEdgeClient(&Options{EdgeAddress: e.addr, TLS: &tls.Config{RootCAs: e.roots},
		ServiceAccountTokenFile: file, Logger: slog.New(slog.DiscardHandler)}, time.Second, &broadcaster{},
		func(tunnel.RequestLine) {})
	c.setOperatorID("op-1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	defer func() { cancel(); <-done }()
	if hello := wait.Receive(t, "the hello", e.hellos); hello.Token != first {
		t.Errorf("the hello has %q", hello.Token)
	}
	session := wait.Receive(t, "the session", e.up)
	write(next)
	if token := wait.Receive(t, "the renewal", e.renewals); token != next || session.Err() != nil {
		t.Errorf("renewed with %q; the session: %v", token, session.Err())
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// serveTLS returns an agent that checks and respects nothing. It answers each header.
func serveTLS(cert tls.Certificate, cfg *tls.Config, answer string) func(*tunnel.Stream) {
	cfg.Certificates = []tls.Certificate{cert}
	return func(st *tunnel.Stream) {
		c := tls.Server(st, cfg)
		if _, err := c.Read(make([]byte, 64<<10)); err == nil {
			_, _ = io.WriteString(c, answer)
		}
	}
}

func TestConnect_RefusesAnswers(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	cert := owner.sign(t, nil)
	for name, c := range map[string]struct {
		answer string
		opens  bool
	}{
		"opened":    {frame(`{"opened":true,"new":1}`), true},
		"neither":   {frame(`{}`), false},
		"both":      {frame(`{"opened":true,"refused":"X"}`), false},
		"no JSON":   {frame(`opened`), false},
		"oversized": {frame(`{"opened":true}` + strings.Repeat(" ", 16<<10)), false},
	} {
		forwarder, agent := w.open(t, honest)
		var serving sync.WaitGroup
		serving.Go(func() {
			serveTLS(cert, &tls.Config{NextProtos: []string{"fairlead-seal/1"}}, c.answer)(agent)
		})
		conn, err := owner.trust(t).Connect(timeoutContext(t), forwarder, sealed.Header{URL: endpoint})
		if (err == nil) != c.opens || (conn != nil) != c.opens {
			t.Errorf("%s: %v", name, err)
		}
		serving.Wait()
	}
}

// An agent, or the service in its place, that speaks something else.
func TestConnect_RefusesOtherProtocols(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	cert := owner.sign(t, nil)
	nameless := owner.sign(t, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"db.demo"} })
	send := func(text string) func(*tunnel.Stream) {
		return func(st *tunnel.Stream) { _, _ = io.WriteString(st, text) }
	}
	protocols, opened := []string{"fairlead-seal/1"}, frame(`{"opened":true}`)
	record := "\x16\x03\x03\x40\x00" + strings.Repeat("\x02\x00\xff\xff", 4096) // a part of a message
	for name, c := range map[string]struct {
		agent func(*tunnel.Stream)
		want  sealed.Reason
	}{
		"no URI":             {serveTLS(nameless, &tls.Config{NextProtos: protocols}, opened), sealed.NameMismatch},
		"TLS 1.2":            {serveTLS(cert, &tls.Config{MaxVersion: tls.VersionTLS12}, opened), ""},
		"other protocol":     {serveTLS(cert, &tls.Config{NextProtos: []string{"h2"}}, opened), ""},
		"no protocol":        {serveTLS(cert, &tls.Config{}, opened), ""},
		"plain HTTP":         {send("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 100)), ""},
		"endless":            {send(strings.Repeat(record, 8)), ""},
		"a caller's hello":   {send("\x16\x03\x01\x00\x04\x01\x00\x00\x00"), ""},
		"plain alert":        {send("\x15\x03\x03\x00\x02\x02\x28"), ""},
		"plain close_notify": {send("\x15\x03\x03\x00\x02\x01\x00"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forwarder, st := w.open(t, honest)
			var serving sync.WaitGroup
			serving.Go(func() { c.agent(st) })
			_, err := owner.trust(t).Connect(timeoutContext(t), forwarder, sealed.Header{URL: endpoint})
			wantReason(t, err, cmp.Or(c.want, sealed.NotSealed))
			serving.Wait()
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{st}); err == nil {
				t.Error("the stream was not aborted")
			}
		})
	}
}

// The service answers with what it recorded of an earlier connection.
func TestFirstFlight_RefusesReplays(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	var recorded [2]bytes.Buffer
	for d := range recorded {
		done := make(chan struct{})
		e := w.mustConnect(t, owner.trust(t), as, relayWith(direction(d), func(to, from *tunnel.Stream) error {
			defer close(done)
			_, err := io.Copy(io.MultiWriter(to, &recorded[d]), struct{ io.Reader }{from})
			return err
		}))
		_, _ = e.forwarder.Abort(), e.agent.Abort()
		<-done
	}
	replay := func(to *tunnel.Stream, recorded *bytes.Buffer) {
		_, _ = to.Write(recorded.Bytes())
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{to})
	}
	forwarder, _ := w.open(t, func(forwarder, _ *tunnel.Stream) { replay(forwarder, &recorded[toForwarder]) })
	_, err := owner.trust(t).Connect(timeoutContext(t), forwarder, sealed.Header{URL: endpoint})
	wantReason(t, err, sealed.NotSealed)
	_, agent := w.open(t, func(_, agent *tunnel.Stream) { replay(agent, &recorded[toAgent]) })
	if _, err := as.Accept(timeoutContext(t), agent); err == nil {
		t.Error("the agent accepted a replay")
	}
}

// A peer that sends nothing, at each step. ctx ends the wait and the stream.
func TestFirstFlight_EndsWithContext(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	to := owner.trust(t)
	accept := func(ctx context.Context, forwarder, agent *tunnel.Stream, _ context.CancelFunc) error {
		_, err := as.Accept(ctx, agent)
		return err
	}
	connect := func(ctx context.Context, forwarder, agent *tunnel.Stream, _ context.CancelFunc) error {
		_, err := to.Connect(ctx, forwarder, sealed.Header{URL: endpoint})
		return err
	}
	for name, c := range map[string]struct {
		waiting func(context.Context, *tunnel.Stream, *tunnel.Stream, context.CancelFunc) error
		peer    func(t *testing.T, forwarder, agent *tunnel.Stream)
		onAgent bool
	}{
		"no hello of the agent": {connect, func(t *testing.T, _, agent *tunnel.Stream) {
			_, err := agent.Read(make([]byte, 1))
			must.Succeed(t, err)
		}, false},
		"no answer": {connect, func(t *testing.T, _, agent *tunnel.Stream) {
			_, err := as.Accept(timeoutContext(t), agent)
			must.Succeed(t, err)
		}, false},
		"no hello of the forwarder": {accept, func(*testing.T, *tunnel.Stream, *tunnel.Stream) {}, true},
		"no header": {accept, func(t *testing.T, forwarder, _ *tunnel.Stream) {
			rawCaller(t, forwarder, "fairlead-seal/1")
		}, true},
		"half a header": {accept, func(t *testing.T, forwarder, _ *tunnel.Stream) {
			_, _ = io.WriteString(rawCaller(t, forwarder, "fairlead-seal/1"), "\x40\x00{")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(timeoutContext(t))
			forwarder, agent := w.open(t, honest)
			ended := make(chan error, 1)
			go func() { ended <- c.waiting(ctx, forwarder, agent, cancel) }()
			c.peer(t, forwarder, agent)
			cancel()
			if err := wait.Receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			other := agent
			if c.onAgent {
				other = forwarder
			}
			must.Succeed(t, other.SetReadDeadline(time.Now().Add(time.Minute)))
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{other}); err == nil {
				t.Error("the stream was not aborted")
			}
		})
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// keepSpares makes the forwarder keep spares until stop is called, or the test ends.
func (r *rig) keepSpares() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.relay.KeepSpares(ctx)
	}()
	stop = func() { cancel(); <-ended }
	r.t.Cleanup(stop)
	return stop
}

// exchange makes a call, and reports whether it got a spare.
func (r *rig) exchange(id string, trust *sealed.Trust, want string) (spare bool) {
	r.t.Helper()
	before := r.opened.Load()
	c := r.call(id, trust)
	_, _ = io.WriteString(c, "hello")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != want {
		r.t.Errorf("%q, %v, %+v", got, err, servicetest.Receive(r.t, c.failure, "failure"))
	}
	return r.opened.Load() == before
}

func TestSpares_ServeCalls(t *testing.T) {
	t.Parallel()
	t.Run(withSpares, testSparesServeCalls)
	t.Run(inPairs+"/"+withSpares, testSparesServeCalls)
}

func testSparesServeCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("got ")), r.owner.Identity(databaseURL)))
	trust := r.owner.Trust()
	for range 3 {
		servicetest.Eventually(t, "a call with a spare", func() bool { return r.exchange(id, trust, "got hello") })
	}
}

// TestSpares_CountOnceUsed holds that a spare is no connection, to people and to metrics, until it has a
// client, and that its number serves once, in its session, for its endpoint.
func TestSpares_CountOnceUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.serve("in-a", r.endpoint(upstream(t, digest("")), r.owner.Identity(databaseURL)))
	session, ctx := r.relay.Sessions.Live(), servicetest.Context(t)
	h := tunnel.OpenHeader{EndpointID: id, Scheme: "tcp", Host: "db.demo", Port: 5432, Sealed: true, SpareID: 7}
	counted := func(what, n string) bool {
		return strings.Contains(r.ScrapeMetrics(), "fairlead_server_endpoint_"+what+`{endpoint="`+id+`"} `+n+"\n")
	}
	open := func(beside *tunnel.Stream, h tunnel.OpenHeader) (*tunnel.Stream, error) {
		t.Helper()
		st, err := beside.OpenBeside(ctx, h)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = st.Close() })
		return st, st.WaitOpened(ctx)
	}
	spare, err := session.Open(ctx, h)
	must.Succeed(t, err)
	_, err = sealed.ReadHint(spare)
	must.Succeed(t, err)
	if counted("open", "1") || counted("connections_total", "1") {
		t.Error("a spare is counted")
	}
	stranger := r.StartForwarder()
	strange, err := stranger.Wait(ctx)
	must.Succeed(t, err)
	client := h
	client.Sealed, client.ClientAddr = false, servicetest.PodAddr
	st, err := strange.Open(ctx, client)
	must.Succeed(t, err)
	if err := st.WaitOpened(ctx); !errors.As(err, new(*tunnel.RefusedError)) {
		t.Errorf("another session uses a spare: %v", err)
	}
	if st, err := open(spare, h); err == nil {
		if _, err = sealed.ReadHint(st); err == nil {
			if _, err = st.Read(make([]byte, 1)); err == nil {
				t.Error("two spares have one number")
			}
		}
	}
	if _, err := open(spare, client); err != nil {
		t.Errorf("the spare is not used: %v", err)
	}
	servicetest.Eventually(t, "an open connection", func() bool { return counted("open", "1") })
	if _, err := open(spare, client); !errors.As(err, new(*tunnel.RefusedError)) {
		t.Errorf("a spare is used twice: %v", err)
	}
	_ = spare.Abort()
	servicetest.Eventually(t, "an ended connection", func() bool {
		return counted("open", "0") && counted("connections_total", "1")
	})
}

// TestSpares_EndWithWhatTheyPass holds that idle spares end, and no drain waits for them, when the agent,
// the forwarder or the server is about to stop.
func TestSpares_EndWithWhatTheyPass(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*rig){
		"agent":     func(r *rig) { r.stop() },
		"forwarder": func(r *rig) { _ = r.relay.Sessions.Live().Drain(time.Minute) },
		"server":    func(r *rig) { _ = r.StopAndWait() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			id := r.serve("in-a", r.endpoint(upstream(t, digest("")), r.owner.Identity(databaseURL)))
			spare, err := r.relay.Sessions.Live().Open(t.Context(), tunnel.OpenHeader{EndpointID: id, Scheme: "tcp",
				Host: "db.demo", Port: 5432, Sealed: true, SpareID: 7})
			must.Succeed(t, err)
			_, err = r.owner.Trust().Handshake(t.Context(), afterHint(t, spare), databaseURL)
			must.Succeed(t, err)
			began := time.Now()
			stop(r)
			servicetest.Eventually(t, "the end of the spare", spare.HasEnded)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestSpares_FrozenAgent holds that a call whose spare leads to an agent that does not respond soon gets
// another one.
func TestSpares_FrozenAgent(t *testing.T) {
	t.Parallel()
	t.Run(withSpares, testSparesFrozenAgent)
	t.Run(inPairs+"/"+withSpares, testSparesFrozenAgent)
}

func testSparesFrozenAgent(t *testing.T) {
	t.Parallel()
	var process frozen.Process
	r := newRig(t)
	r.relay.Timing.OpenTimeout = time.Minute
	endpoint := r.endpoint(upstream(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }), r.owner.Identity(databaseURL))
	r.dial = freezing(t, &process)
	id := r.serve("in-a", endpoint)
	t.Cleanup(process.Continue)
	trust := r.owner.Trust()
	ask := func() (spare bool) {
		before := r.opened.Load()
		c := r.call(id, trust)
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Error(err)
		}
		return r.opened.Load() == before
	}
	for range 2 {
		servicetest.Eventually(t, "a call with a spare", ask)
	}
	r.dial = nil
	r.serve("in-b", endpoint)
	process.Stop()
	began := time.Now()
	ask()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("answered after %v", took)
	}
}

// afterHint returns the stream once the edge has named the agent.
func afterHint(t *testing.T, st *tunnel.Stream) *tunnel.Stream {
	t.Helper()
	_, err := sealed.ReadHint(st)
	must.Succeed(t, err)
	return st
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestAttempt_HeaderStatesRemainingTime checks that the edge's timeout is shorter than the
// forwarder's, so that the edge can report the cause.
func TestAttempt_HeaderStatesRemainingTime(t *testing.T) {
	t.Parallel()
	const held = 200 * time.Millisecond
	e := startEdge(t, respond)
	timing := shortTiming()
	timing.SessionWait, timing.OpenTimeout = testTimeout, 2*testTimeout
	r := start(t, e, timing)
	unregistered := testObjects()
	unregistered.OperatorID = ""
	r.source.update(unregistered)
	c := r.dial(10080)
	_, _ = io.WriteString(c, "GET /held HTTP/1.1\r\nHost: api.demo\r\n\r\n")
	wait.Until(t, "the connection to be accepted", func() bool {
		return testutil.ToFloat64(r.metrics.statsOf("api.demo").active) == 1
	})
	came := time.Now() // or before
	wait.Until(t, "the connection to be held for some time", func() bool { return time.Since(came) > held })
	r.source.update(testObjects())
	if h := wait.Receive(t, "a stream", e.streams); h.Deadline > timing.OpenTimeout-held {
		t.Errorf("the edge is given %v of %v after %v", h.Deadline, timing.OpenTimeout, held)
	}
	if res, _ := response(t, c); res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
}

func TestAttempt_SendsEveryByteOnce(t *testing.T) {
	t.Parallel()
	const trials = 4
	got, reads := make(chan []byte, 1), make(chan int, trials)
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		if n := <-reads; n >= 0 {
			_, _ = io.CopyN(io.Discard, st, int64(n))
			_ = st.Refuse(tunnel.RefusedDraining)
			return
		}
		defer st.Close()
		_ = st.Accept()
		b, _ := io.ReadAll(st)
		got <- b
	})
	r := connected(t, e, shortTiming())
	for _, size := range []int{0, 1, forward.BufferSize, forward.BufferLimit - 1, 2 * forward.BufferLimit, 1 << 20} {
		sent := make([]byte, size)
		_, _ = rand.Read(sent)
		for i := range trials - 1 { // the later, the more has come
			reads <- min(size, forward.BufferLimit) * i / (trials - 2)
		}
		reads <- -1
		c := r.dial(15432)
		go func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 7000)
				_, _ = c.Write(rest[:n])
				rest = rest[n:]
			}
			_ = c.CloseWrite()
		}()
		if b := wait.Receive(t, "the bytes", got); !bytes.Equal(b, sent) {
			t.Errorf("got %d bytes that differ from the %d sent", len(b), size)
		}
		// the edge did not end its own direction
		if b, err := io.ReadAll(c); len(b) > 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

// TestAttempt_AbortIsNoEOF checks that whatever the two ends do concurrently, neither reads EOF
// after an abort.
func TestAttempt_AbortIsNoEOF(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, allObserved(t)), shortTiming())
	call := func(kind string, size int) {
		c := r.dial(15432)
		sent := append([]byte(kind), make([]byte, size)...)
		_, writing := c.Write(sent)
		if kind[0] == 'r' {
			forward.Reset(c)
			return
		}
		_ = c.CloseWrite()
		b, err := io.ReadAll(c)
		switch {
		case !strings.Contains("od", kind[1:]):
			if err == nil {
				t.Errorf("%s: read an end after %d bytes", kind, len(b))
			}
		case err != nil || writing != nil || !bytes.Equal(b, sent):
			t.Errorf("%s: wrote %d bytes, %v; read %d, %v", kind, len(sent), writing, len(b), err)
		}
	}
	var calls sync.WaitGroup
	for _, client := range []string{"h", "r"} {
		for _, edge := range []string{"a", "A", "o", "d", "u"} {
			calls.Go(func() {
				for _, size := range []int{0, 10, 3 * forward.BufferLimit, 0, 100, 10 * forward.BufferLimit} {
					call(client+edge, size)
				}
			})
		}
	}
	calls.Wait()
	wait.Until(t, "all connections to end", func() bool {
		return testutil.ToFloat64(r.metrics.statsOf("db.demo").active) == 0
	})
}

// allObserved handles a stream as its first two bytes specify: what the client does, half-close or
// reset, and what the edge does.
func allObserved(t *testing.T) func(context.Context, *tunnel.Stream) {
	var tried sync.Map
	return func(_ context.Context, st *tunnel.Stream) {
		defer st.Close()
		var kind [2]byte
		if _, err := io.ReadFull(st, kind[:]); err != nil {
			return
		}
		_, again := tried.LoadOrStore(st.Header().ClientAddr, true)
		switch {
		case kind[1] == 'a':
			_ = st.Abort()
		case kind[1] == 'u':
			_ = st.Refuse(tunnel.RefusedUpstream)
		case kind[1] == 'd' && !again:
			_ = st.Refuse(tunnel.RefusedDraining)
		default:
			_ = st.Accept()
			if kind[1] == 'A' {
				return
			}
			b, err := io.ReadAll(st)
			if kind[0] == 'r' && err == nil {
				t.Error("the edge read an end of a connection that its client aborted")
			}
			if err == nil {
				_, _ = st.Write(append(kind[:], b...))
				_ = st.CloseWrite()
				_, _ = io.Copy(io.Discard, st)
			}
		}
	}
}

func TestAttempt_CutBeforeOpen(t *testing.T) {
	t.Parallel()
	e := startEdge(t, neverAnswer)
	timing := shortTiming()
	timing.OpenTimeout = 2 * testTimeout
	r := connected(t, e, timing)
	web, db := r.dial(10080), r.dial(15432)
	_, _ = io.WriteString(web, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n")
	wait.Receive(t, "a stream", e.streams)
	wait.Receive(t, "another", e.streams)
	r.cutConns()
	if res, body := response(t, web); res.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "ERR_FL_3004") {
		t.Errorf("got %s %s", res.Status, body)
	}
	wantReset(t, db)
}

// TestAttempt_OpenConnectionOutlivesDeadline checks that the deadline for opening ends when the
// stream is open.
func TestAttempt_OpenConnectionOutlivesDeadline(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	e := startEdge(t, func(ctx context.Context, st *tunnel.Stream) {
		defer st.Close()
		_ = st.Accept()
		select {
		case <-late:
		case <-ctx.Done():
		}
		_, _ = io.WriteString(st, "late")
		_ = st.CloseWrite()
		_, _ = io.Copy(io.Discard, st)
	})
	for open := 250 * time.Millisecond; ; open *= 4 {
		timing := shortTiming()
		timing.OpenTimeout = open
		r := connected(t, e, timing)
		c := r.dial(15432)
		dialled := time.Now()
		wait.Until(t, "the time to be over", func() bool { return time.Since(dialled) > open+open/4 })
		if testutil.ToFloat64(r.metrics.errors.WithLabelValues("db.demo", string(forward.ReasonSilent))) > 0 &&
			open < testTimeout {
			continue // a slow machine
		}
		close(late)
		_ = c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "late" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		return
	}
}

// The edge's report about an http request comes after the success of its connection, and may be a
// failure.
func TestPortStats_SuccessTime(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan time.Time, 1), make(chan struct{})
	r := connected(t, startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		asked <- time.Now()
		<-answer
		_ = st.Accept()
		_ = st.CloseGracefully(testTimeout)
	}), shortTiming())
	for _, port := range []int{10080, 15432} {
		c := r.dial(port)
		at := wait.Receive(t, "a stream", asked)
		answer <- struct{}{}
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		for _, l := range r.status().Listeners {
			if l.Port == port && (l.LastSuccess == nil || l.LastSuccess.After(at) != (port == 15432)) {
				t.Errorf("%s: asked at %v, success at %v", l.URL, at, l.LastSuccess)
			}
		}
	}
}

func TestMetrics_CountsAbortsOfOpenStreams(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		_ = st.Accept()
		_, _ = io.WriteString(st, "220")
		_, _ = io.ReadFull(st, make([]byte, 1))
		_ = st.Abort()
	}), shortTiming())
	for i, abort := range []func(*net.TCPConn){
		func(c *net.TCPConn) { forward.Reset(c) },
		func(c *net.TCPConn) { _, _ = io.WriteString(c, "x"); wantReset(t, c) },
	} {
		c := r.dial(15432)
		if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		abort(c)
		wait.Until(t, "the abort to be counted", func() bool {
			return testutil.ToFloat64(r.metrics.errors.WithLabelValues("db.demo", string(reasonAborted))) == float64(
				i+1)
		})
	}
	if out := testutil.ToFloat64(r.metrics.statsOf("db.demo").toClient); out != 6 {
		t.Errorf("%v bytes counted", out)
	}
}

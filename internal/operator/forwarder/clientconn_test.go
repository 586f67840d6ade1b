// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// Between the first byte and OPENED a client may do everything that it may do later.

func TestClientConn_AbortBeforeOpen(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) { // which never answers
		_, err := io.ReadAll(st)
		ended <- err
		_ = st.Abort()
	})
	r := connected(t, e, shortTiming())
	c := r.dial(15432)
	_, _ = io.WriteString(c, "hello")
	wait.Receive(t, "a stream", e.streams)
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := wait.Receive(t, "the edge's read to end", ended); err == nil {
		t.Error("the edge read an ordinary end")
	}
	wait.Until(t, "the error to be counted as the client's", func() bool {
		return testutil.ToFloat64(r.metrics.errors.WithLabelValues("db.demo", string(forward.ReasonClient))) == 1
	})
	for _, l := range r.status().Listeners {
		if l.LastFailure != nil || l.LastSuccess != nil {
			t.Errorf("port %d: %+v, %v", l.Port, l.LastFailure, l.LastSuccess)
		}
	}
}

func TestClientConn_HalfClosedClientGetsErrorPage(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		_, _ = io.ReadAll(st) // the end of the client's input comes before the answer
		_ = st.Refuse(tunnel.RefusedOffline)
	}), shortTiming())
	c := r.dial(10080)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n")
	_ = c.CloseWrite()
	if res, body := response(t, c); res.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "ERR_FL_3001") {
		t.Errorf("got %s %s", res.Status, body)
	}
}

// TestClientConn_LargeInputBeforeOpen checks that input waits once the buffer is full, and that all
// its bytes arrive.
func TestClientConn_LargeInputBeforeOpen(t *testing.T) {
	t.Parallel()
	const size, kept = 16 << 20, 2 * forward.BufferLimit // at most
	var arrived int64
	open, done := make(chan struct{}), make(chan struct{})
	e := startEdge(t, func(_ context.Context, st *tunnel.Stream) {
		defer close(done)
		defer st.Close()
		n, _ := io.CopyN(io.Discard, st, forward.BufferLimit)
		_ = st.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		more, err := io.CopyN(io.Discard, st, kept-n) // what was under way
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes came, and an end of %v: the client was not made to wait", n+more, err)
		}
		n += more
		close(open)
		_ = st.SetReadDeadline(time.Time{})
		_ = st.Accept()
		rest, _ := io.Copy(io.Discard, st)
		arrived = n + rest
	})
	c := connected(t, e, shortTiming()).dial(15432)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, size))
		_ = c.CloseWrite()
		sent <- err
	}()
	wait.Receive(t, "the first bytes", open)
	if err := wait.Receive(t, "the client to send all", sent); err != nil {
		t.Fatal(err)
	}
	if wait.Receive(t, "the edge to have all", done); arrived != size {
		t.Errorf("%d of %d bytes arrived", arrived, size)
	}
}

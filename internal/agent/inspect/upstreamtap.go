// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// UpstreamTap is a connection to an upstream that records what passes: what is written is a request.
// It ends with Close or Abort.
type UpstreamTap struct {
	relay.HalfCloser
	conn *conn

	mu    sync.Mutex // mu guards ended, and recording.
	ended bool
}

// TapUpstream returns c with a tap.
func (r *Recorder) TapUpstream(c relay.HalfCloser, info Info) *UpstreamTap {
	return &UpstreamTap{HalfCloser: c, conn: r.newConn(info)}
}

// Write sends a request, or a part of it.
func (t *UpstreamTap) Write(p []byte) (int, error) {
	t.mu.Lock()
	if !t.ended && len(p) > 0 { // before the upstream has them, so that its answer is queued later
		t.conn.recordRequest(p)
	}
	t.mu.Unlock()
	return t.HalfCloser.Write(p)
}

// Read returns what the upstream answered.
func (t *UpstreamTap) Read(p []byte) (int, error) {
	n, err := t.HalfCloser.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 0 && !t.ended {
		t.conn.answered.Store(true)
		t.conn.recordUnless(t.conn.skipping.Load(), &t.conn.server, p[:n], t.conn.recorder.now())
	}
	return n, err
}

// Close closes the connection.
func (t *UpstreamTap) Close() error {
	t.end(nil)
	return t.HalfCloser.Close()
}

// Abort aborts the connection.
func (t *UpstreamTap) Abort() error {
	t.end(errAborted)
	relay.Abort(t.HalfCloser)
	return nil
}

var errAborted = errors.New("the caller, or the agent, ended the connection")

// end records the end of the connection.
func (t *UpstreamTap) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		t.conn.end(cause)
	}
}

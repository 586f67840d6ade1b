// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/mux"
)

// link is one connection of a session: a multiplexer over TLS, and its control stream.
type link struct {
	conn *muxConn
	mux  *mux.Session
	ctrl *control
	log  *slog.Logger

	session   *Session // set by Session.add
	streams   atomic.Int64
	idleSince atomic.Int64  // when streams became 0; Unix nanoseconds
	emptied   chan struct{} // gets a token when streams became 0
	retired   chan struct{} // closed when the server has no more streams here, after the client asked it
	losses    losses        // the session's mutex guards it

	ctx      context.Context // ends with the link; its cause is why
	cancel   context.CancelCauseFunc
	handlers sync.WaitGroup // stream handlers
}

// newLink starts a multiplexer on c. The link outlives ctx: its owner says how it ends.
func newLink(ctx context.Context, c *tls.Conn, log *slog.Logger, windows *WindowBudget, client bool) *link {
	l := &link{conn: newMuxConn(c), log: log, emptied: make(chan struct{}, 1), retired: make(chan struct{})}
	l.idleSince.Store(time.Now().UnixNano())
	l.conn.trusted.Store(client)
	cfg := mux.Config{Client: client, Budget: windows, OnProbe: l.late, OnResponsiveness: l.responsiveness}
	if !client {
		cfg.Backlog = 8 // a peer that has not said who it is has a control stream and no other
	}
	l.mux = mux.New(l.conn, cfg)
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// openControl opens or awaits stream 1.
func (l *link) openControl(ctx context.Context, client bool) error {
	var st *mux.Stream
	var err error
	if client {
		st, err = l.mux.Open(ctx, nil)
	} else {
		st, err = l.mux.Accept()
	}
	if err != nil {
		return fmt.Errorf("opening the control stream: %w", err)
	}
	if st.ID() != 1 {
		return fmt.Errorf("the first stream has number %d, not 1", st.ID())
	}
	l.ctrl = &control{st: st}
	l.ctrl.stuck.late = func() { l.close(errors.New("the peer took no control message for " + controlTimeout.String())) }
	return nil
}

// close ends the link at once and with it its streams. The first reason counts. It does not block
// for longer than a TLS close.
func (l *link) close(reason error) {
	l.cancel(reason)
	l.mux.Close(reason) // closes the connection, too
}

// farewell sends a last message and gives the peer a moment to read what was sent, this message
// last, and to hang up. It ends the link: the multiplexer's own close would throw away what still
// waits to be written.
func (l *link) farewell(m *message, reason error) {
	timer := time.AfterFunc(farewellTime, func() { l.close(reason) })
	defer timer.Stop()
	if l.ctrl.send(m) == nil {
		<-l.mux.Done()
	}
	l.close(reason)
}

// farewellTime is how long a peer gets to take its leave after a refusal or a STOP.
const farewellTime = time.Second

// serve runs a link that was added to a session until it ends. It returns when no message handler
// runs any more and the session has let go of the link; stream handlers may still run: wait for
// l.handlers.
func (l *link) serve() error {
	if l.session.client {
		l.takeStreams()
	}
	var watching sync.WaitGroup
	watching.Go(func() { // who reads messages may be serving one
		<-l.mux.Done()
		l.close(l.broken(nil))
	})
	l.close(l.readMessages())
	watching.Wait()
	err := context.Cause(l.ctx)
	l.session.remove(l, err)
	return err
}

// takeStreams serves the peer's streams from now on: l has a session.
func (l *link) takeStreams() {
	l.mux.Serve(func(st *mux.Stream) {
		s := &Stream{st: st, link: l}
		l.streamBegan()
		l.handlers.Go(func() { l.serveStream(s) })
	})
}

// readMessages hands control messages and request lines to the session, one after the other.
func (l *link) readMessages() error {
	limit := messageLimit
	if !l.session.client {
		limit = bindLimit
	}
	var lines lineReader
	for {
		b, err := l.ctrl.receive(limit)
		if err != nil {
			return l.broken(err)
		}
		if areLines(b) {
			if err := lines.read(b, l.session.side.line); err != nil {
				return err
			}
			continue
		}
		m, err := parseMessage(b)
		if err != nil {
			return err
		}
		if err := l.session.take(l, m); err != nil {
			return err
		}
	}
}

var errHungUp = errors.New("the peer closed the connection")

// broken words why the connection ended; err is what a read of the control stream returned, or nil.
func (l *link) broken(err error) error {
	ended := l.mux.Err()
	reason := cmp.Or(ended, err)
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case errors.Is(reason, io.EOF), errors.Is(reason, io.ErrUnexpectedEOF):
		return errHungUp
	case ended == nil && errors.Is(err, os.ErrDeadlineExceeded): // of the read, not of a write to the connection
		return fmt.Errorf("the peer did not finish a control message within %s", controlTimeout)
	case errors.Is(reason, mux.ErrKeepAlive):
		return errors.New("the peer did not answer a ping for 30 s")
	default:
		return fmt.Errorf("the tunnel's connection broke: %v", reason) //nolint:errorlint // its cause is nobody's business
	}
}

// serveStream reads a stream's header and hands the stream over. An owner that gives it back
// unanswered or unended gets it refused, aborted.
func (l *link) serveStream(s *Stream) {
	defer func() { _ = s.Close() }()
	waits := false
	header, err := readHeader(s, func(n int) {
		if !waits && s.st.Buffered() < n { // as a rule it comes in one piece
			waits = true
			_ = s.SetReadDeadline(time.Now().Add(controlTimeout))
		}
	})
	if err != nil {
		l.log.Debug("refusing a stream", "error", err)
		_ = s.Refuse(RefusedHeader)
		return
	}
	if waits {
		_ = s.SetReadDeadline(time.Time{})
	}
	s.header = header
	if !l.session.admits() {
		_ = s.Refuse(RefusedDraining)
		return
	}
	l.session.side.stream(l.ctx, s)
	if !s.answered.Load() {
		_ = s.Refuse(RefusedInternal)
	}
}

// open opens a stream on l, which pick has counted, and sends the encoded header.
func (l *link) open(ctx context.Context, h OpenHeader, header []byte) (*Stream, error) {
	st, err := l.openWith(ctx, h, header)
	if err != nil {
		l.streamEnded()
	}
	return st, err
}

func (l *link) streamBegan() {
	l.streams.Add(1)
	l.session.streams.Add(1)
}

func (l *link) streamEnded() {
	if l.streams.Add(-1) == 0 {
		l.idleSince.Store(time.Now().UnixNano())
		l.isEmpty()
	}
	if l.session.streams.Add(-1) == 0 {
		select {
		case l.session.idle <- struct{}{}:
		default:
		}
	}
}

func (l *link) isEmpty() {
	select {
	case l.emptied <- struct{}{}:
	default:
	}
}

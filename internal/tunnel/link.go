// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// link is one connection of a session: a multiplexer over TLS, and its control stream.
type link struct {
	conn *muxConn
	mux  *mux.Session
	ctrl *control
	log  *slog.Logger

	session     *Session         // session is set by Session.addLinkLocked.
	replicaID   string           // the server's id, on the client's side; set before the link is added
	replicas    int              // replicas that the server counts; guarded by the session's mutex
	addresses   []ReplicaAddress // addresses that the server has announced; guarded by the session's mutex
	avoidUntil  time.Time        // end of the time in which the replica refuses streams; guarded by the session's mutex
	streams     atomic.Int64
	idleSince   atomic.Int64  // time when streams became 0, in Unix nanoseconds
	emptied     chan struct{} // emptied gets a token when streams becomes 0.
	peerRetired chan struct{} // peerRetired is closed when the server has retired the connection, too.
	// peerDraining ends when the peer, or the replica behind the connection, announces that it stops.
	peerDraining context.Context
	setDraining  context.CancelFunc

	pairs   *pairPool // pairs has the parked connections at the same replica; nil = none; set with session.
	parking *parking  // parking fills pairs, on the client's side; nil = nothing is parked there.
	noPairs PairPause // noPairs is why parking is nil, on the client's side; set with session.

	server serverSupport // the server's features, on the client's side; set before the link is added

	ctx      context.Context // ctx ends with the link; its cause is the reason.
	cancel   context.CancelCauseFunc
	handlers sync.WaitGroup // the streams' handlers
	// requests counts the agent's requests being served; requestSlots has a token for each.
	requests     sync.WaitGroup
	requestSlots chan struct{}
}

// maxRequests is how many requests of one connection a server serves at a time: small writes to the
// store share a transaction.
const maxRequests = 64

// newLink starts a multiplexer on c. The link does not end with ctx; the caller closes it.
func newLink(ctx context.Context, c *muxConn, log *slog.Logger, windows *WindowBudget, client bool) *link {
	l := &link{conn: c, log: log, emptied: make(chan struct{}, 1), peerRetired: make(chan struct{})}
	l.peerDraining, l.setDraining = context.WithCancel(context.Background())
	l.idleSince.Store(time.Now().UnixNano())
	l.conn.trusted.Store(client)
	cfg := mux.Config{Client: client, Budget: windows, OnProbe: l.probeOtherLinks,
		OnResponsiveness: l.responsivenessChanged}
	if !client {
		l.requestSlots = make(chan struct{}, maxRequests)
		cfg.Backlog = 8 // before its hello is accepted, a peer may open the control stream only
	}
	l.mux = mux.New(l.conn, cfg)
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// openControl opens or accepts stream 1.
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
	l.ctrl = &control{st: st, watchdog: writeWatchdog{link: l}}
	return nil
}

// send sends a control message; a connection that cannot take it is closed.
func (l *link) send(m *message) error { return l.closeOnSendError(l.ctrl.send(m)) }

// closeOnSendError closes a connection that could not take a message.
func (l *link) closeOnSendError(err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, errRetired) && !errors.As(err, new(*Error)) {
		l.close(err)
	}
	return err
}

// close ends the link and its streams at once. The first reason counts. It does not block for
// longer than a TLS close.
func (l *link) close(reason error) {
	l.cancel(reason)
	l.mux.Close(reason) // closes the connection, too
}

// closeGracefully sends a last message and waits up to gracefulCloseTime for the peer to read
// everything that was sent and to hang up. It then ends the link; the multiplexer's own close would
// discard what is not written yet.
func (l *link) closeGracefully(m *message, reason error) {
	timer := time.AfterFunc(gracefulCloseTime, func() { l.close(reason) })
	defer timer.Stop()
	if l.ctrl.send(m) == nil {
		<-l.mux.Done()
	}
	l.close(reason)
}

// gracefulCloseTime is how long a peer may take to hang up after a refusal or a STOP.
const gracefulCloseTime = time.Second

// serve runs a link of a session until it ends. When it returns, no message handler runs any more
// and the session has removed the link; stream handlers may still run: wait for l.handlers.
func (l *link) serve() error {
	if l.session.legs != nil {
		l.acceptStreams()
	}
	var watching sync.WaitGroup
	watching.Go(func() { // the goroutine that reads messages may wait for a slot
		<-l.mux.Done()
		l.close(l.endReason(nil))
	})
	l.close(l.readMessages())
	l.requests.Wait()
	watching.Wait()
	err := context.Cause(l.ctx)
	l.session.removeLink(l, err)
	return err
}

// acceptStreams serves the peer's streams from now on. l must have a session.
func (l *link) acceptStreams() {
	l.mux.Serve(func(st *mux.Stream) {
		s := &Stream{st: st, link: l}
		l.streamStarted()
		l.handlers.Go(func() { l.serveStream(s) })
	})
}

// readMessages passes control messages and request lines to the session, one after the other; a
// request may still be served when the next message is read.
func (l *link) readMessages() error {
	limit := messageLimit
	if l.session.legs == nil {
		limit = bindLimit
	}
	var lines lineReader
	for {
		b, err := l.ctrl.receive(limit)
		if err != nil {
			return l.endReason(err)
		}
		if isRequestLines(b) {
			if err := lines.read(b, l.session.handler.handleRequestLine); err != nil {
				return err
			}
			continue
		}
		m, err := parseMessage(b)
		if err != nil {
			return err
		}
		if err := l.session.handleMessage(l, m); err != nil {
			return err
		}
	}
}

var errHungUp = errors.New("the peer closed the connection")

// endReason returns why the connection ended; err is the error of a read of the control stream, or
// nil.
func (l *link) endReason(err error) error {
	ended := l.mux.Err()
	reason := cmp.Or(ended, err)
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case errors.Is(reason, io.EOF), errors.Is(reason, io.ErrUnexpectedEOF):
		return errHungUp
	case ended == nil && errors.Is(err, os.ErrDeadlineExceeded): // the read's deadline, not a write's
		return fmt.Errorf("the peer did not finish a control message within %s", controlTimeout)
	case errors.Is(reason, mux.ErrKeepAlive):
		return errors.New("the peer did not answer a ping for 30 s")
	default:
		//nolint:errorlint // callers must not match its cause
		return fmt.Errorf("the tunnel's connection broke: %v", reason)
	}
}

// serveStream reads a stream's header and passes the stream to the session's handler. A stream that
// the handler has neither accepted nor refused is refused; one that it has not ended is aborted.
func (l *link) serveStream(s *Stream) {
	defer func() { _ = s.Close() }()
	waits := false
	header, err := readHeader(s, func(n int) {
		if !waits && s.st.Buffered() < n { // usually it arrives in one piece
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
	if !l.session.acceptsStreams() {
		_ = s.Refuse(RefusedDraining)
		return
	}
	if !l.adoptPair(s) {
		s.answered.Store(true)
		_ = s.Abort()
		return
	}
	l.session.handler.handleStream(l.ctx, s)
	if !s.answered.Load() {
		_ = s.Refuse(RefusedInternal)
	}
}

// adoptPair gives a stream of the peer's the parked connection that its header names. It returns false
// when there is none with that number, and for a stream that is not sealed, which never has one.
func (l *link) adoptPair(s *Stream) bool {
	id := s.header.PairID
	if id != 0 {
		var conn *tunedConn
		if s.header.Sealed && l.pairs != nil {
			conn = l.pairs.take(id)
		}
		if conn == nil {
			l.log.Debug("resetting a stream: its parked connection is unknown", "pair", id)
			return false
		}
		s.pair = newPair(l, s.st, conn)
	}
	if s.header.Sealed {
		l.sealedStreamOpened(id != 0)
	}
	return true
}

// takesSpares reports whether the peer knows sealed streams without a client.
func (l *link) takesSpares() bool {
	features := l.server.features
	if l.session.legs == nil {
		features = l.session.hello.Features
	}
	return slices.Contains(features, FeatureSpares)
}

func (l *link) sealedStreamOpened(hasPair bool) {
	l.session.SealedStreams.add(hasPair)
	if l.parking != nil {
		l.parking.streamOpened(hasPair)
	}
}

// openSealed is open for a sealed stream, whose bytes a parked connection carries if there is one.
func (l *link) openSealed(ctx context.Context, h OpenHeader, header []byte) (*Stream, error) {
	if h.SpareID != 0 && !l.takesSpares() {
		l.streamEnded()
		return nil, &RefusedError{Code: RefusedNotSealed}
	}
	var parked *parkedConn
	if l.pairs != nil {
		parked = l.pairs.takeUsable()
	}
	l.sealedStreamOpened(parked != nil)
	if parked == nil {
		return l.open(ctx, h, header)
	}
	h.PairID, h.BytesFollow = parked.id, false
	header, err := h.encode()
	var s *Stream
	if err == nil {
		s, err = l.open(ctx, h, header)
	}
	if err != nil {
		l.pairs.putBack(parked)
		return nil, err
	}
	s.pair = newPair(l, s.st, parked.conn)
	return s, nil
}

// open opens a stream on l, which pickLink has counted, and sends the encoded header. It fails with
// ErrUnresponsive when the peer turns out to be unresponsive.
func (l *link) open(ctx context.Context, h OpenHeader, header []byte) (*Stream, error) {
	open := l.mux.Open
	if h.BytesFollow {
		open = l.mux.OpenLater
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := l.mux.OnUnresponsive(func() { cancel(ErrUnresponsive) })
	defer stop()
	st, err := open(ctx, header)
	if err != nil {
		l.streamEnded()
		if errors.Is(context.Cause(ctx), ErrUnresponsive) {
			err = ErrUnresponsive
		}
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return &Stream{st: st, link: l, header: h, isOpener: true}, nil
}

func (l *link) streamStarted() {
	l.streams.Add(1)
	l.session.streams.Add(1)
}

func (l *link) streamEnded() {
	if l.streams.Add(-1) == 0 {
		l.idleSince.Store(time.Now().UnixNano())
		wake(l.emptied)
	}
	if l.session.streams.Add(-1) == 0 {
		wake(l.session.idle)
	}
}

// probeOtherLinks pings the peer on the session's other connections, because Session.Unresponsive
// judges all of them together.
func (l *link) probeOtherLinks() {
	s := l.conn.session.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	links := slices.Clone(s.links.active)
	s.mu.Unlock()
	for _, other := range links {
		if other != l {
			other.mux.Probe()
		}
	}
}

// closeUnresponsive pings the peer, and closes the connection if it does not answer.
func (l *link) closeUnresponsive() {
	stop := l.mux.OnUnresponsive(func() { go l.close(errPathChanged) })
	time.AfterFunc(pathProbeLimit, stop)
}

// responsivenessChanged notifies the session's handler that the peer has become unresponsive on the
// connection, or answers again.
func (l *link) responsivenessChanged() {
	if s := l.conn.session.Load(); s != nil {
		s.handler.responsivenessChanged(s)
	}
}

// wake puts a token into a channel that has room for one.
func wake(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

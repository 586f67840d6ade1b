// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

const (
	openedByte  = 0x01  // OPENED, the receiver's first byte
	refusedFlag = 0x100 // in a reset's error code: refused, not aborted; the low byte is the RefuseCode
)

// ResetError means that the peer aborted the stream. errors.Is matches ECONNRESET.
type ResetError struct{ Code RefuseCode }

// Error returns the reason as a sentence.
func (e *ResetError) Error() string { return "stream reset by the peer: " + e.Code.String() }

// Is matches syscall.ECONNRESET.
func (e *ResetError) Is(target error) bool { return target == syscall.ECONNRESET }

// Stream is one relayed connection: a net.Conn with half-close and abort. Its owner must call
// Close, Reset or Refuse in the end. One goroutine may read while another writes and a third one
// closes.
type Stream struct {
	st     *mux.Stream
	link   *link
	header OpenHeader
	pair   *pair // pair carries the bytes after the header and OPENED; nil = st does.

	isOpener bool
	isOpen   atomic.Bool // isOpen is set on the opener's side when OPENED was received.
	answered atomic.Bool // answered is set on the receiver's side by Accept and Refuse.
	sawEOF   atomic.Bool
	sentEOF  atomic.Bool
	ended    atomic.Bool

	readMu     sync.Mutex // readMu admits one reader at a time.
	openErr    error      // openErr is why the stream will never open, on the opener's side; guarded by readMu.
	onRefused  func(RefuseCode)
	watchAgent func(f func()) (stop func()) // watchAgent is set by SetAgentWatch.
	deadlineMu sync.Mutex
	deadline   time.Time // the deadline of reads
}

var _ net.Conn = (*Stream)(nil)

// Header returns the header with which the stream was opened.
func (s *Stream) Header() OpenHeader { return s.header }

// Session returns the session that the stream belongs to.
func (s *Stream) Session() *Session { return s.link.session }

// ReplicaID returns, on the client's side, the replica at the stream's other end; "" = a server
// that is alone.
func (s *Stream) ReplicaID() string { return s.link.replicaID }

// Read reads what the peer sent. On the opener's side it first waits for OPENED, and returns a
// *RefusedError when the peer refused. io.EOF means that the peer called CloseWrite; every other
// end is another error.
func (s *Stream) Read(p []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if err := s.awaitOpened(); err != nil {
		return 0, err
	}
	if s.pair != nil {
		n, err := s.pair.Read(p)
		return n, s.readError(err)
	}
	n, err := s.st.Read(p)
	return n, s.readError(err)
}

// Next is Read without a copy: it returns bytes that are valid until the next call of Next, Read or
// Close.
func (s *Stream) Next() ([]byte, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if err := s.awaitOpened(); err != nil {
		return nil, err
	}
	if s.pair != nil {
		p, err := s.pair.next()
		return p, s.readError(err)
	}
	p, err := s.st.Next()
	return p, s.readError(err)
}

// ReleaseNext ends the use of what Next has returned. No Read or Next may be in progress.
func (s *Stream) ReleaseNext() {
	if s.pair != nil {
		s.pair.conn.release()
	}
}

// Socket returns the connection that carries the stream's bytes unchanged from now on, for splice(2);
// nil = there is none, the stream is not open yet, or bytes were read ahead.
func (s *Stream) Socket() *net.TCPConn {
	if s.pair == nil || s.isOpener && !s.isOpen.Load() {
		return nil
	}
	return s.pair.socket()
}

// WaitOpened waits until the receiver has answered: nil, a *RefusedError, ctx's error, or another
// one. It must not run concurrently with Read.
func (s *Stream) WaitOpened(ctx context.Context) error {
	if !s.isOpener || s.isOpen.Load() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil { // only the stream's deadline can end the wait
		s.readMu.Lock()
		defer s.readMu.Unlock()
		return s.awaitOpened()
	}
	s.deadlineMu.Lock()
	before := s.deadline
	s.deadlineMu.Unlock()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.SetReadDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	s.readMu.Lock()
	err := s.awaitOpened()
	s.readMu.Unlock()
	if !stop() {
		<-interrupted
		_ = s.SetReadDeadline(before)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ctx.Err()
		}
	}
	return err
}

// awaitOpened reads the receiver's first byte. readMu must be held.
func (s *Stream) awaitOpened() error {
	if !s.isOpener || s.isOpen.Load() {
		return nil
	}
	if s.openErr != nil {
		return s.openErr
	}
	var b [1]byte
	_, err := s.st.Read(b[:])
	err = s.readError(err)
	switch {
	case err == nil && b[0] == openedByte:
		s.isOpen.Store(true)
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case err == nil:
		_ = s.Reset(Aborted)
		err = fmt.Errorf("stream answered with byte %#02x, which is not OPENED", b[0])
	case connread.IsEOF(err):
		err = fmt.Errorf("stream ended without OPENED: %w", io.ErrUnexpectedEOF)
	}
	s.openErr = err
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Code == RefusedDraining {
		s.link.avoidReplica()
	}
	if s.onRefused != nil {
		s.onRefused(refused.Code)
	}
	return err
}

// OnRefused makes f be called with the code when the receiver has refused the stream, once that has
// been read. f must not block. It must be called before anything else that reads.
func (s *Stream) OnRefused(f func(RefuseCode)) { s.onRefused = f }

// OnUnresponsive calls f once, unless stop is called before, when the peer does not answer on the
// stream's connection; at once if that is already so. f must not block. Such a wait costs a ping
// every two seconds while nothing else arrives.
func (s *Stream) OnUnresponsive(f func()) (stop func()) {
	if s.watchAgent == nil {
		return s.link.mux.OnUnresponsive(f)
	}
	f = sync.OnceFunc(f)
	stopHere, stopBeyond := s.link.mux.OnUnresponsive(f), s.watchAgent(f)
	return func() {
		stopHere()
		stopBeyond()
	}
}

// SetAgentWatch makes OnUnresponsive watch the agent, too, to which the peer relays the stream: watch
// calls f when that one does not respond, unless stop is called before. It must be called before the
// stream is used.
func (s *Stream) SetAgentWatch(watch func(f func()) (stop func())) { s.watchAgent = watch }

// Unresponsive reports whether the peer does not answer on the stream's connection, and since when.
func (s *Stream) Unresponsive() (since time.Time, yes bool) { return s.link.mux.Unresponsive() }

// Buffered returns how many bytes Read or Next would return without waiting.
func (s *Stream) Buffered() int {
	if s.pair != nil {
		return int(s.pair.unread.Load())
	}
	return s.st.Buffered()
}

// IsIdle reports whether the peer has sent nothing since the last Read, nor ended the stream.
func (s *Stream) IsIdle() bool { return s.pair == nil && s.st.IsIdle() }

// readError records an end of input and translates the error.
func (s *Stream) readError(err error) error {
	if connread.IsEOF(err) {
		s.sawEOF.Store(true)
	}
	return s.translateError(err)
}

// Write sends p. It does not wait for OPENED, but blocks while the peer's window is full.
func (s *Stream) Write(p []byte) (int, error) {
	if s.pair != nil {
		n, err := s.pair.Write(p)
		return n, s.translateError(err)
	}
	n, err := s.st.Write(p)
	return n, s.translateError(err)
}

// WriteLater is Write for bytes that are followed by others, or by CloseWrite: they are sent
// together with those, or within 5 ms.
func (s *Stream) WriteLater(p []byte) (int, error) {
	if s.pair != nil {
		return s.Write(p)
	}
	n, err := s.st.WriteLater(p)
	return n, s.translateError(err)
}

// CloseWrite ends the direction towards the peer, which reads io.EOF.
func (s *Stream) CloseWrite() error { return s.closeWrite(s.st.CloseWrite) }

// CloseWriteLater is CloseWrite for a peer that does not wait for it: it is sent within 5 ms.
func (s *Stream) CloseWriteLater() error { return s.closeWrite(s.st.CloseWriteLater) }

func (s *Stream) closeWrite(end func() error) error {
	if s.pair != nil {
		if err := s.pair.CloseWrite(); err != nil {
			return s.translateError(err)
		}
	}
	err := end()
	if err == nil {
		s.sentEOF.Store(true)
	}
	return s.translateError(err)
}

// SawEOF reports whether Read or Next has returned io.EOF.
func (s *Stream) SawEOF() bool { return s.sawEOF.Load() }

// PeerDraining returns a context that ends when the peer, or the replica that relays the stream,
// announces that it stops.
func (s *Stream) PeerDraining() context.Context { return s.link.peerDraining }

// Reset aborts both directions: the peer's writes, and its reads once it has read what was sent
// before, fail with a *ResetError, never io.EOF.
func (s *Stream) Reset(code RefuseCode) error { return s.resetMux(uint32(code)) }

// Abort is Reset without a reason.
func (s *Stream) Abort() error { return s.Reset(Aborted) }

// Close ends the stream: cleanly when both directions have ended (CloseWrite, and a Read that
// returned io.EOF), else with an abort.
func (s *Stream) Close() error {
	if s.sawEOF.Load() && s.sentEOF.Load() {
		if s.pair != nil {
			s.pair.close()
		}
		s.st.Release()
		s.markEnded()
		return nil
	}
	return s.Abort()
}

// CloseGracefully is CloseWrite, then reading until io.EOF for at most d, then Close. It
// corresponds to closing a TCP connection, whose kernel still delivers what was written. No Read
// may be in progress.
func (s *Stream) CloseGracefully(d time.Duration) error {
	if s.CloseWrite() == nil && s.SetReadDeadline(time.Now().Add(d)) == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{s})
	}
	return s.Close()
}

// Accept sends the opener that its stream is open, with the first bytes that are written or within
// 5 ms. It must come before the first Write.
func (s *Stream) Accept() error {
	if s.isOpener || !s.answered.CompareAndSwap(false, true) {
		return errors.New("accepting a stream twice, or one that this side opened")
	}
	write := s.st.WriteLater
	if s.pair != nil { // what follows does not take it along
		write = s.st.Write
	}
	_, err := write([]byte{openedByte})
	return s.translateError(err)
}

// Refuse sends the opener the reason and ends the stream.
func (s *Stream) Refuse(code RefuseCode) error {
	if s.isOpener || !s.answered.CompareAndSwap(false, true) {
		return errors.New("refusing a stream twice, or one that this side opened")
	}
	return s.resetMux(refusedFlag | uint32(code))
}

// resetMux resets the stream with an error code of the protocol.
func (s *Stream) resetMux(code uint32) error {
	if s.pair != nil {
		s.pair.abort()
	}
	err := s.st.Reset(code)
	s.markEnded() // last: a connection without streams may be closed
	return err
}

// markEnded removes the stream from the counts, once.
func (s *Stream) markEnded() {
	if s.ended.CompareAndSwap(false, true) {
		s.link.streamEnded()
	}
}

// LocalAddr returns the local address of the connection below.
func (s *Stream) LocalAddr() net.Addr { return s.link.conn.LocalAddr() }

// RemoteAddr returns the peer's address of the connection below. The client's own is in the header.
func (s *Stream) RemoteAddr() net.Addr { return s.link.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads, including one that waits.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.deadlineMu.Lock()
	defer s.deadlineMu.Unlock()
	s.deadline = t
	if s.pair != nil {
		_ = s.pair.tcp.SetReadDeadline(t) // fails once it is closed, as reads do
	}
	return s.st.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of writes.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	if s.pair != nil {
		_ = s.pair.tcp.SetWriteDeadline(t)
	}
	return s.st.SetWriteDeadline(t)
}

// translateError returns the error for the stream's owner that corresponds to one of the
// multiplexer.
func (s *Stream) translateError(err error) error {
	if err == nil || connread.IsEOF(err) {
		return err
	}
	var reset *mux.ResetError
	if !errors.As(err, &reset) {
		return err
	}
	code := RefuseCode(reset.Code)
	if reset.Code&refusedFlag != 0 && s.isOpener && !s.isOpen.Load() {
		return &RefusedError{Code: code}
	}
	return &ResetError{Code: code}
}

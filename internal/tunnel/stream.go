// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"
	"time"
)

// Stream is one relayed connection: a net.Conn with half-close and abort.
type Stream struct{}

var _ net.Conn = (*Stream)(nil)

// Header returns the header that the stream was opened with.
func (s *Stream) Header() OpenHeader { panic("tunnel: not built yet") }

// Session returns the session that the stream belongs to.
func (s *Stream) Session() *Session { panic("tunnel: not built yet") }

// Read reads what the peer sent. On the opener's side it first waits for OPENED, and returns a *RefusedError when the peer refused.
func (s *Stream) Read(p []byte) (int, error) { panic("tunnel: not built yet") }

// Write sends p. It does not wait for OPENED.
func (s *Stream) Write(p []byte) (int, error) { panic("tunnel: not built yet") }

// WaitReadable returns when Read would not block.
func (s *Stream) WaitReadable() error { panic("tunnel: not built yet") }

// CloseWrite says that no more bytes follow: the peer reads io.EOF.
func (s *Stream) CloseWrite() error { panic("tunnel: not built yet") }

// Reset aborts both directions: the peer's reads fail with an error, never io.EOF.
func (s *Stream) Reset(code RefuseCode) error { panic("tunnel: not built yet") }

// Abort is Reset without a reason.
func (s *Stream) Abort() error { return s.Reset(Aborted) }

// Close ends the stream: cleanly when both directions have ended, else with an abort.
func (s *Stream) Close() error { panic("tunnel: not built yet") }

// Accept tells the opener that its stream is open.
func (s *Stream) Accept() error { panic("tunnel: not built yet") }

// Refuse tells the opener why not, and ends the stream.
func (s *Stream) Refuse(code RefuseCode) error { panic("tunnel: not built yet") }

// WaitOpened waits until the receiver has answered: nil, a *RefusedError, or another error.
func (s *Stream) WaitOpened(ctx context.Context) error { panic("tunnel: not built yet") }

// LocalAddr returns the local address of the connection below.
func (s *Stream) LocalAddr() net.Addr { panic("tunnel: not built yet") }

// RemoteAddr returns the peer's address of the connection below.
func (s *Stream) RemoteAddr() net.Addr { panic("tunnel: not built yet") }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error { panic("tunnel: not built yet") }

// SetReadDeadline sets the deadline of reads.
func (s *Stream) SetReadDeadline(t time.Time) error { panic("tunnel: not built yet") }

// SetWriteDeadline sets the deadline of writes.
func (s *Stream) SetWriteDeadline(t time.Time) error { panic("tunnel: not built yet") }

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxHead is more than net/http takes for a head (MaxHeaderBytes and a little): it answers a longer one with 431, and ends the connection.
const maxHead = maxHeader + 16<<10

// refusedHead is what the HTTP server gets to read in place of a head that is refused: it answers in its turn, with 400, and ends the connection.
const refusedHead = "REFUSED\r\n\r\n"

const (
	lingerTime  = time.Second
	lingerBytes = 2 << 20
)

var errFraming = errors.New("the framing of the request's body is broken")

// strict is an HTTP/1 connection that lets only heads and bodies through whose framing every program reads alike (see checkHead). Programs before
// us and behind us then agree with us on where each request ends. It follows the framing, and keeps no bytes but those of a head that is not complete.
type strict struct {
	net.Conn       // TLS, or below
	below    *conn // what the handler asks about the client

	// only Read touches these
	in       []byte // read, not looked at yet: the beginning of a head
	out      []byte // looked at, not handed out yet
	framing  framing
	left     int64 // of a body with a length
	chunks   chunks
	err      error // sticky
	whatever bool  // nothing more is looked at

	hijacked atomic.Bool
	asked    atomic.Bool // for an upgrade that was not answered yet: what follows may be no HTTP, and is kept
	refused  atomic.Bool // the last answer may still be under way while the client sends

	mu       sync.Mutex
	deadline time.Time // as the HTTP server has set it
	begun    time.Time // when the first byte of an incomplete head came; zero = there is none
	patience time.Duration
}

// framing says what comes next.
type framing int

const (
	headNext framing = iota
	lengthNext
	chunksNext
)

func newStrict(c net.Conn, below *conn, patience time.Duration) *strict {
	return &strict{Conn: c, below: below, patience: patience}
}

// Read hands out complete heads and what belongs to bodies.
func (s *strict) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(s.out) > 0:
			n := copy(p, s.out)
			s.out = s.out[n:]
			return n, nil
		case s.whatever || s.hijacked.Load():
			if len(s.in) > 0 {
				s.out, s.in = s.in, nil
				continue
			}
			return s.Conn.Read(p)
		case s.err != nil:
			return 0, s.err
		}
		var n int
		var err error
		switch s.framing {
		case lengthNext:
			return s.readLength(p)
		case chunksNext:
			n, err = s.readChunks(p)
		default:
			n, err = s.readHead(p)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// take moves what was read too far ahead, or else reads from the connection.
func (s *strict) take(p []byte) (int, error) {
	if len(s.in) > 0 {
		n := copy(p, s.in)
		if s.in = s.in[n:]; len(s.in) == 0 {
			s.in = nil
		}
		return n, nil
	}
	return s.Conn.Read(p)
}

func (s *strict) readLength(p []byte) (int, error) {
	n, err := s.take(p[:min(int64(len(p)), s.left)])
	if s.left -= int64(n); s.left == 0 {
		s.framing = headNext
	}
	return n, err
}

func (s *strict) readChunks(p []byte) (int, error) {
	n, err := s.take(p)
	used, done, ok := s.chunks.scan(p[:n])
	switch {
	case !ok:
		s.err = errFraming
		err = nil // it comes with the next read, when there is something before it
	case done:
		s.framing = headNext
		s.in = append(bytes.Clone(p[used:n]), s.in...)
	}
	return used, err
}

// readHead returns 0 and nil when there is something to hand out, or to go on with.
func (s *strict) readHead(p []byte) (int, error) {
	if len(s.in) == 0 { // the usual case: a head comes as a whole and is not copied
		n, err := s.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		end, bad := headEnd(p[:n])
		if !bad && end == n && !s.asked.Load() && s.follow(p[:n]) {
			return n, nil
		}
		s.in = append(make([]byte, 0, max(2*n, 4<<10)), p[:n]...)
	}
	end, bad := headEnd(s.in)
	switch {
	case s.asked.Load() && len(s.in) < maxHead:
		return 0, s.readMore()
	case bad || end > 0 && !s.follow(s.in[:end]):
		s.out, s.in, s.err = []byte(refusedHead), nil, io.EOF
		s.refused.Store(true)
		s.setBegun(time.Time{})
		return 0, nil
	case end > 0:
		s.out, s.in = s.in[:end:end], s.in[end:]
		s.setBegun(time.Time{})
		return 0, nil
	case len(s.in) >= maxHead:
		s.whatever = true
		s.refused.Store(true)
		return 0, nil
	}
	return 0, s.readMore()
}

// readMore adds to an incomplete head. It has s.patience in all, whatever the HTTP server allows.
func (s *strict) readMore() error {
	if s.begun.IsZero() && !s.asked.Load() {
		s.setBegun(time.Now())
	}
	if cap(s.in) == len(s.in) {
		s.in = append(make([]byte, 0, 2*cap(s.in)), s.in...)
	}
	n, err := s.Conn.Read(s.in[len(s.in):cap(s.in)])
	s.in = s.in[:len(s.in)+n]
	if n > 0 {
		return nil
	}
	if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		s.whatever = true // the HTTP server says what it thinks of it
		return nil
	}
	return err
}

// follow checks a complete head and prepares for what it announces.
func (s *strict) follow(head []byte) bool {
	length, chunked, ok := checkHead(head)
	s.asked.Store(ok && asksUpgrade(head))
	switch {
	case !ok:
		return false
	case chunked:
		s.framing, s.chunks = chunksNext, chunks{}
	case length > 0:
		s.framing, s.left = lengthNext, length
	}
	return true
}

// state follows the HTTP server's view of the connection.
func (s *strict) state(st http.ConnState) {
	switch st {
	case http.StateHijacked:
		s.hijacked.Store(true)
	case http.StateIdle: // the upgrade was declined: what follows is a request
		s.asked.Store(false)
	}
}

// setBegun notes when an incomplete head began, for the deadline of reads.
func (s *strict) setBegun(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() && t.IsZero() {
		return
	}
	s.begun = t
	_ = s.Conn.SetReadDeadline(s.due())
}

// due is the deadline of reads. The caller holds mu.
func (s *strict) due() time.Time {
	if s.begun.IsZero() {
		return s.deadline
	}
	if end := s.begun.Add(s.patience); s.deadline.IsZero() || end.Before(s.deadline) {
		return end
	}
	return s.deadline
}

// SetReadDeadline sets the deadline of reads; an incomplete head may have an earlier one.
func (s *strict) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return s.Conn.SetReadDeadline(s.due())
}

// SetDeadline sets both deadlines.
func (s *strict) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// Close closes the connection. After a refusal it first takes what the client still sends, for a moment: a connection that is closed with unread
// input is reset, and the client might not see the answer.
func (s *strict) Close() error {
	if s.refused.Swap(false) {
		_ = s.CloseWrite()
		_ = s.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, s.Conn, lingerBytes)
	}
	return s.Conn.Close()
}

// CloseWrite ends the sending side, so that the last answer is not lost with unread input.
func (s *strict) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

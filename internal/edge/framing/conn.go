// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

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

const (
	// MaxHeaderBytes is what an http.Server behind a Conn allows for a request's header.
	MaxHeaderBytes = 64 << 10
	// MaxFrameSize is the largest HTTP/2 frame, in bytes, that such a server allows: what every client
	// may send without asking (RFC 9113, section 4.2). The server keeps a buffer of that size for a
	// connection.
	MaxFrameSize = 16 << 10
	// HeadTimeout is how long a request's head may take, from its first byte to its last.
	HeadTimeout = 10 * time.Second

	// maxHead is more than net/http takes for a head (MaxHeaderBytes and a little): it answers a
	// longer one with 431, and ends the connection.
	maxHead = MaxHeaderBytes + 16<<10
	// refusedHead is what net/http reads in place of a head that is refused: it answers in its turn,
	// with 400, and ends the connection.
	refusedHead = "REFUSED\r\n\r\n"

	lingerTime  = time.Second
	lingerBytes = 2 << 20
)

var (
	errFraming  = errors.New("the framing of the request's body is broken")
	errTooEarly = errors.New("too much came behind a request for an upgrade that was declined")
)

// Protocol is what a client may speak on a connection.
type Protocol int

// Protocols of a connection.
const (
	HTTP1        Protocol = iota
	HTTP2                 // as agreed by ALPN
	HTTP1OrHTTP2          // HTTP/2 with prior knowledge (RFC 9113, section 3.3)
)

// Options are what a Conn has to know of its listener.
type Options struct {
	Protocol     Protocol
	StartTimeout time.Duration // until the first byte arrives
	HeadTimeout  time.Duration // of a head or an HTTP/2 header block, from its first byte to its last
	// Linger makes Close read on for a moment after a refusal: a connection that is closed with unread
	// input is reset, and the client might not see the answer. Not needed where the connection below
	// does that itself.
	Linger bool
}

// Conn is a connection that lets only heads and bodies through whose framing every program reads
// alike (see checkHead). Programs before and behind the edge then agree with it on where each
// request ends. It keeps no bytes but those of an incomplete head. Read is for one goroutine at a
// time, like that of net/http.
type Conn struct {
	net.Conn
	opt Options

	// Only Read touches these.
	in          []byte // read, but not checked yet: the beginning of a head
	out         []byte // checked, but not handed out yet
	next        part
	left        int64 // of a body with a length
	chunks      chunks
	frames      frames
	head        headState
	err         error // sticky
	passThrough bool  // nothing more is checked

	hijacked       atomic.Bool
	upgradePending atomic.Bool // what follows may not be HTTP, and is kept until the upgrade is answered
	refused        atomic.Bool // the last answer may still be on its way while the client sends

	mu       sync.Mutex
	deadline time.Time // as the http.Server has set it
	headDue  time.Time // when the incomplete head has to be complete; zero = there is none
}

// part is what comes next.
type part int

const (
	startNext part = iota // of the connection: the preface of HTTP/2, or a head
	headNext
	lengthNext
	chunksNext
	framesNext
)

// headState is what has come of a head.
type headState int

const (
	headAwaited    headState = iota // the connection is new
	headIncomplete                  // HeadTimeout runs
	headComplete
)

// New returns a Conn that checks what c reads.
func New(c net.Conn, o Options) *Conn {
	s := &Conn{Conn: c, opt: o}
	if o.Protocol == HTTP1 {
		s.next = headNext
	}
	s.setHeadDue(time.Now().Add(o.StartTimeout))
	return s
}

// Read hands out complete heads and what belongs to bodies.
func (s *Conn) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(s.out) > 0:
			n := copy(p, s.out)
			if s.out = s.out[n:]; len(s.out) == 0 {
				s.out = nil
			}
			return n, nil
		case s.passThrough || s.hijacked.Load():
			if len(s.in) > 0 {
				s.out, s.in = s.in, nil
				continue
			}
			return s.Conn.Read(p)
		case s.err != nil:
			return 0, s.err
		}
		if n, err := s.readNext(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// readNext returns 0 and nil when there is something to hand out, or to go on with.
func (s *Conn) readNext(p []byte) (int, error) {
	switch s.next {
	case startNext:
		return 0, s.readStart()
	case lengthNext:
		return s.readLength(p)
	case chunksNext:
		return s.readChunks(p)
	case framesNext:
		return s.readFrames(p)
	default:
		return s.readHead(p)
	}
}

// take moves what was read too far ahead, or else reads from the connection.
func (s *Conn) take(p []byte) (int, error) {
	if len(s.in) > 0 {
		n := copy(p, s.in)
		if s.in = s.in[n:]; len(s.in) == 0 {
			s.in = nil
		}
		return n, nil
	}
	return s.Conn.Read(p)
}

func (s *Conn) readLength(p []byte) (int, error) {
	n, err := s.take(p[:min(int64(len(p)), s.left)])
	if s.left -= int64(n); s.left == 0 {
		s.next = headNext
	}
	return n, err
}

func (s *Conn) readChunks(p []byte) (int, error) {
	n, err := s.take(p)
	used, done, ok := s.chunks.scan(p[:n])
	switch {
	case !ok:
		s.err = errFraming
		err = nil // it comes with the next read, when there is something before it
	case done:
		s.next = headNext
		s.in = append(bytes.Clone(p[used:n]), s.in...)
	}
	return used, err
}

// readStart reads until it is clear whether the client speaks HTTP/2, which begins with a preface.
func (s *Conn) readStart() error {
	switch n := min(len(s.in), len(preface)); {
	case string(s.in[:n]) != preface[:n] && s.opt.Protocol == HTTP2:
		s.err = io.EOF // no answer would be understood
	case string(s.in[:n]) != preface[:n]:
		s.next = headNext
	case n == len(preface):
		s.out, s.in, s.next = s.in[:n:n], s.in[n:], framesNext
		s.headEnds()
	default:
		return s.readMore()
	}
	return nil
}

// readFrames hands out what an HTTP/2 client sends. A header block has HeadTimeout.
func (s *Conn) readFrames(p []byte) (int, error) {
	n, err := s.take(p)
	ended, open, ok := s.frames.scan(p[:n])
	if !ok {
		s.err = errHeaderBlock
		return 0, s.err
	}
	if ended || !open {
		s.headEnds()
	}
	if open {
		s.headBegins()
	}
	return n, err
}

func (s *Conn) readHead(p []byte) (int, error) {
	if len(s.in) == 0 { // the usual case: a head comes as a whole and is not copied
		n, err := s.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		end, bad := headEnd(p[:n])
		if !bad && end == n && !s.upgradePending.Load() && s.follow(p[:n]) {
			s.headEnds()
			return n, nil
		}
		s.in = append(make([]byte, 0, max(2*n, 4<<10)), p[:n]...)
	}
	end, bad := headEnd(s.in)
	switch {
	case s.upgradePending.Load() && len(s.in) < maxHead:
		return 0, s.readMore()
	case s.upgradePending.Load():
		// net/http takes one byte and no more before the upgrade is answered. When it is declined,
		// there is no head to go on with, and the connection ends.
		s.out, s.in, s.err = s.in[:1:1], s.in[1:], errTooEarly
		return 0, nil
	case bad || end > 0 && !s.follow(s.in[:end]):
		s.refuse()
		return 0, nil
	case end > 0:
		s.out, s.in = s.in[:end:end], s.in[end:]
		s.headEnds()
		return 0, nil
	case len(s.in) >= maxHead:
		s.passThrough = true
		s.refused.Store(true)
		return 0, nil
	}
	return 0, s.readMore()
}

// refuse makes net/http answer 400, and the connection end.
func (s *Conn) refuse() {
	s.out, s.in, s.err = []byte(refusedHead), nil, io.EOF
	s.refused.Store(true)
	s.next = headNext
	s.headEnds()
}

// readMore adds to an incomplete head. It has HeadTimeout in all, however long the http.Server
// allows.
func (s *Conn) readMore() error {
	if len(s.in) > 0 && !s.upgradePending.Load() {
		s.headBegins()
	}
	if cap(s.in) == len(s.in) {
		s.in = append(make([]byte, 0, max(2*cap(s.in), 4<<10)), s.in...)
	}
	n, err := s.Conn.Read(s.in[len(s.in):cap(s.in)])
	s.in = s.in[:len(s.in)+n]
	if n > 0 {
		return nil
	}
	if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		s.passThrough = true // net/http answers what there is
		return nil
	}
	return err
}

// follow checks a complete head and prepares for what it announces.
func (s *Conn) follow(head []byte) bool {
	length, chunked, ok := checkHead(head)
	s.upgradePending.Store(ok && asksUpgrade(head))
	switch {
	case !ok:
		return false
	case chunked:
		s.next, s.chunks = chunksNext, chunks{}
	case length > 0:
		s.next, s.left = lengthNext, length
	}
	return true
}

// SetState follows the http.Server's view of the connection: it is to be called by its ConnState
// hook.
func (s *Conn) SetState(st http.ConnState) {
	switch st {
	case http.StateHijacked:
		s.hijacked.Store(true)
	case http.StateIdle: // the upgrade was declined: what follows is a request
		s.upgradePending.Store(false)
	}
}

// headBegins starts the clock of a head.
func (s *Conn) headBegins() {
	if s.head != headIncomplete {
		s.head = headIncomplete
		s.setHeadDue(time.Now().Add(s.opt.HeadTimeout))
	}
}

// headEnds stops it.
func (s *Conn) headEnds() {
	if s.head != headComplete {
		s.head = headComplete
		s.setHeadDue(time.Time{})
	}
}

func (s *Conn) setHeadDue(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headDue = t
	_ = s.Conn.SetReadDeadline(s.readDeadline())
}

// readDeadline is the earlier of the deadlines of reads. The caller holds mu.
func (s *Conn) readDeadline() time.Time {
	if s.headDue.IsZero() || !s.deadline.IsZero() && s.deadline.Before(s.headDue) {
		return s.deadline
	}
	return s.headDue
}

// SetReadDeadline sets the deadline of reads; an incomplete head may have an earlier one.
func (s *Conn) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return s.Conn.SetReadDeadline(s.readDeadline())
}

// SetDeadline sets both deadlines.
func (s *Conn) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// Close closes the connection, after a refusal as Options.Linger has it.
func (s *Conn) Close() error {
	if s.refused.Swap(false) && s.opt.Linger {
		_ = s.CloseWrite()
		_ = s.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, s.Conn, lingerBytes)
	}
	return s.Conn.Close()
}

// CloseWrite ends the sending side, so that the last answer is not lost with unread input.
func (s *Conn) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

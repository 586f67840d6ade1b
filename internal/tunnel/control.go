// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/mux"
)

const (
	lengthSize = 4
	helloLimit = 16 << 10 // bytes of a hello, as JSON
	// bytes of a bind, as JSON: a traffic policy of 64 KiB fits, whatever JSON has to escape in it
	bindLimit      = 512 << 10
	messageLimit   = 60 << 10         // bytes of any other message, as JSON: with its length it fits one frame
	keptBuffer     = 8 << 10          // bytes of a buffer for messages that is used again
	controlTimeout = 10 * time.Second // for a handshake, a hello, a request and its answer, and for writing one message
)

// control is the control stream of a connection: messages, each after its length (32 bits, big
// endian). They are JSON, but for those of request lines.
type control struct {
	st    *mux.Stream
	in    []byte     // a buffer of receive's
	mu    sync.Mutex // one message at a time
	last  bool       // sendLast was called
	stuck watch
}

// send writes a message. After an error the connection is of no use, but for errRetired.
func (c *control) send(m *message) error { return c.encode(m, false) }

// sendLast is send; every later one returns errRetired.
func (c *control) sendLast(m *message) error { return c.encode(m, true) }

// sendLater is send for a message that is encoded, with its length, and that the peer does not wait
// for. It does not keep frame.
func (c *control) sendLater(frame []byte) error { return c.write(frame, c.st.WriteLater, false) }

func (c *control) encode(m *message, last bool) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a control message: %w", err)
	}
	limit := messageLimit
	switch m.Type {
	case typeHello:
		limit = helloLimit
	case typeBind:
		limit = bindLimit
	}
	if len(b) > limit {
		return &Error{Code: CodeInvalid, Msg: fmt.Sprintf("the %s has %d bytes, at most %d are allowed: shorten its texts",
			m.Type, len(b), limit)}
	}
	frame := make([]byte, lengthSize, lengthSize+len(b))
	binary.BigEndian.PutUint32(frame, uint32(len(b)))
	return c.write(append(frame, b...), c.st.Write, last)
}

// write takes as long as it takes: a connection that takes nothing for controlTimeout is ended by
// stuck.
func (c *control) write(frame []byte, write func([]byte) (int, error), last bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last {
		return errRetired
	}
	c.last = last
	c.stuck.begin()
	defer c.stuck.end()
	if _, err := write(frame); err != nil {
		return fmt.Errorf("sending a control message: %w", err)
	}
	return nil
}

// receive reads a message, which is good until the next call. It waits for ever for a message to
// begin, and controlTimeout for the rest of it.
func (c *control) receive(limit int) ([]byte, error) {
	waits := false
	b, err := readFrame(c.st, c.in, limit, func(n int) error {
		if c.st.Buffered() >= n { // as a rule it comes in one piece
			return nil
		}
		waits = true
		return c.st.SetReadDeadline(time.Now().Add(controlTimeout))
	})
	if waits {
		_ = c.st.SetReadDeadline(time.Time{})
	}
	if cap(b) <= keptBuffer {
		c.in = b
	}
	return b, err
}

// readFrame reads one message from r, into buf if it fits; begun is called after its length.
func readFrame(r io.Reader, buf []byte, limit int, begun func(n int) error) ([]byte, error) {
	buf = slices.Grow(buf[:0], lengthSize)[:lengthSize]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(buf)
	if n > uint32(limit) {
		return nil, fmt.Errorf("a control message of %d bytes, at most %d are allowed", n, limit)
	}
	if err := begun(int(n)); err != nil {
		return nil, err
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("reading a control message: %w", err)
	}
	return buf, nil
}

// watch calls late when a write has taken controlTimeout. Its timer is not set anew for each write:
// there is one with each request.
type watch struct {
	late func()

	mu    sync.Mutex // guards what follows
	began time.Time  // the write that is under way; zero: none is
	timer *time.Timer
	armed bool
}

func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	switch {
	case w.armed:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(controlTimeout, w.look)
	default:
		w.timer.Reset(controlTimeout)
	}
	w.armed = true
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
}

// look looks at the write that is under way, and again when that one will have taken too long. When
// there is none, the next begin sets the timer.
func (w *watch) look() {
	w.mu.Lock()
	left := controlTimeout - time.Since(w.began)
	if w.armed = !w.began.IsZero() && left > 0; w.armed {
		w.timer.Reset(left)
	}
	late := !w.began.IsZero() && !w.armed
	w.mu.Unlock()
	if late {
		w.late()
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

const (
	lengthSize = 4
	helloLimit = 16 << 10 // bytes of a hello, as JSON
	// bytes of a bind, as JSON: fits a traffic policy of 64 KiB with all its JSON escapes
	bindLimit       = 512 << 10
	messageLimit    = 60 << 10 // bytes of any other message, as JSON: with its length it fits one frame
	maxReusedBuffer = 8 << 10  // a message buffer up to this size is reused
	// for a handshake, a hello, a request and its answer, and for writing one message
	controlTimeout = 10 * time.Second
)

// control is the control stream of a connection: messages, each preceded by its length (32 bits,
// big endian). They are JSON, except those of request lines.
type control struct {
	st       *mux.Stream
	buf      []byte     // receive's buffer
	mu       sync.Mutex // serializes messages
	closed   bool       // sendLast was called
	watchdog writeWatchdog
}

// send writes a message. After an error other than errRetired the connection is unusable.
func (c *control) send(m *message) error { return c.sendMessage(m, false) }

// sendLast is send; every later call returns errRetired.
func (c *control) sendLast(m *message) error { return c.sendMessage(m, true) }

// sendLater is send for an encoded message, with its length, that need not be written at once. It
// does not keep frame.
func (c *control) sendLater(frame []byte) error { return c.write(frame, c.st.WriteLater, false) }

func (c *control) sendMessage(m *message, last bool) error {
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
		return &Error{Code: CodeInvalid,
			Msg: fmt.Sprintf("the %s has %d bytes, at most %d are allowed: shorten its texts",
				m.Type, len(b), limit)}
	}
	frame := make([]byte, lengthSize, lengthSize+len(b))
	binary.BigEndian.PutUint32(frame, uint32(len(b)))
	return c.write(append(frame, b...), c.st.Write, last)
}

// write writes a frame without a deadline of its own: watchdog ends a connection that takes nothing
// for controlTimeout.
func (c *control) write(frame []byte, write func([]byte) (int, error), last bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errRetired
	}
	c.closed = last
	c.watchdog.begin()
	defer c.watchdog.end()
	if _, err := write(frame); err != nil {
		return fmt.Errorf("sending a control message: %w", err)
	}
	return nil
}

// receive reads a message, valid until the next call. It waits without limit for a message to
// begin, and controlTimeout for the rest of it.
func (c *control) receive(limit int) ([]byte, error) {
	waits := false
	b, err := readFrame(c.st, c.buf, limit, func(n int) error {
		if c.st.Buffered() >= n { // usually it arrives in one piece
			return nil
		}
		waits = true
		return c.st.SetReadDeadline(time.Now().Add(controlTimeout))
	})
	if waits {
		_ = c.st.SetReadDeadline(time.Time{})
	}
	if cap(b) <= maxReusedBuffer {
		c.buf = b
	}
	return b, err
}

// readFrame reads one message from r, into buf if it fits. It calls begun with the message's length
// once that is known.
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

// writeWatchdog closes the link when a write has taken controlTimeout. Its timer is not reset for
// each write, as every request causes one.
type writeWatchdog struct {
	link *link

	mu         sync.Mutex // guards what follows
	writeStart time.Time  // when the current write began; zero: none
	timer      *time.Timer
	timerRuns  bool
}

func (w *writeWatchdog) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeStart = time.Now()
	switch {
	case w.timerRuns:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(controlTimeout, w.check)
	default:
		w.timer.Reset(controlTimeout)
	}
	w.timerRuns = true
}

func (w *writeWatchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeStart = time.Time{}
}

// check closes the link if the current write has taken too long, and else resets the timer for it.
// When there is no write, the next begin sets the timer.
func (w *writeWatchdog) check() {
	w.mu.Lock()
	left := controlTimeout - time.Since(w.writeStart)
	if w.timerRuns = !w.writeStart.IsZero() && left > 0; w.timerRuns {
		w.timer.Reset(left)
	}
	late := !w.writeStart.IsZero() && !w.timerRuns
	w.mu.Unlock()
	if late {
		w.link.close(errors.New("the peer took no control message for " + controlTimeout.String()))
	}
}

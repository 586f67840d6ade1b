// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/mux"
)

const (
	lengthSize     = 4
	helloLimit     = 16 << 10         // bytes of a hello, as JSON
	bindLimit      = 512 << 10        // bytes of a bind, as JSON: a traffic policy of 64 KiB fits, whatever JSON has to escape in it
	messageLimit   = 60 << 10         // bytes of any other message, as JSON: with its length it fits one frame
	controlTimeout = 10 * time.Second // for a handshake, a hello, a request and its answer, and for writing one message
)

// control is the control stream of a connection: JSON messages, each after its length (32 bits, big endian).
type control struct {
	st   *mux.Stream
	mu   sync.Mutex // one message at a time
	last bool       // sendLast was called
}

// send writes a message. After an error the connection is of no use, but for errRetired.
func (c *control) send(m *message) error {
	if m.Type == typeRequest { // for a screen
		return c.write(m, c.st.WriteLater, false)
	}
	return c.write(m, c.st.Write, false)
}

// sendLast is send; every later one returns errRetired.
func (c *control) sendLast(m *message) error { return c.write(m, c.st.Write, true) }

func (c *control) write(m *message, write func([]byte) (int, error), last bool) error {
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
		return &Error{Code: CodeInvalid, Msg: fmt.Sprintf("the %s has %d bytes, at most %d are allowed: shorten its texts", m.Type, len(b), limit)}
	}
	frame := make([]byte, lengthSize, lengthSize+len(b))
	binary.BigEndian.PutUint32(frame, uint32(len(b)))
	frame = append(frame, b...)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last {
		return errRetired
	}
	c.last = last
	if err := c.st.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	if _, err := write(frame); err != nil {
		return fmt.Errorf("sending a control message: %w", err)
	}
	return nil
}

// receive reads a message's JSON. It waits for ever for a message to begin, and controlTimeout for the rest of it.
func (c *control) receive(limit int) ([]byte, error) {
	defer func() { _ = c.st.SetReadDeadline(time.Time{}) }()
	return readFrame(c.st, limit, func() error { return c.st.SetReadDeadline(time.Now().Add(controlTimeout)) })
}

// readFrame reads one message from r; begun is called after its length.
func readFrame(r io.Reader, limit int, begun func() error) ([]byte, error) {
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > uint32(limit) {
		return nil, fmt.Errorf("a control message of %d bytes, at most %d are allowed", n, limit)
	}
	if err := begun(); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("reading a control message: %w", err)
	}
	return b, nil
}

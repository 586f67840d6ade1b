// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	earlyLimit = 64 << 10 // bytes of a client that are kept until its stream is open
	earlyRead  = 4 << 10  // what a request usually fits in
	earlyRoom  = 1 << 10  // with less room than this it is not read: the buffer grows
)

// early is what a client sent before its stream was open. It is kept so that it can be sent again on another session, and so that a request
// can be answered here.
type early struct {
	buf   []byte
	eof   bool             // the client has sent everything
	first *[earlyRead]byte // buf's memory until that grows; nil = none was taken
}

// firstBuffers are what early begins with: most connections need no more.
var firstBuffers = sync.Pool{New: func() any { return new([earlyRead]byte) }}

// forget gives the memory back. Nothing of buf is used after it.
func (e *early) forget() {
	if e.first != nil {
		firstBuffers.Put(e.first)
	}
	e.buf, e.first = nil, nil
}

// errClientGone: the client broke off before its stream was open.
var errClientGone = errors.New("client gone")

// await sends what the client sends along the stream until the edge has answered: nil when the stream is open, else the stream is aborted. After
// it, nothing reads from c.
func (e *early) await(ctx context.Context, c net.Conn, st *tunnel.Stream) error {
	pumped := make(chan error, 1)
	go func() {
		stack.Small()
		err := e.pump(c, st)
		if err != nil {
			_ = st.Abort() // which ends the wait
		}
		pumped <- err
	}()
	err := st.WaitOpened(ctx)
	if err != nil {
		_ = st.Abort()
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if <-pumped != nil { // reported once by the system: a later read would look like the client's regular end
		_ = st.Abort()
		return errClientGone
	}
	_ = c.SetReadDeadline(time.Time{})
	return err
}

// pump sends what was kept, then what comes, until the client is interrupted by a deadline, has sent everything or fills the limit, or the stream takes
// no more: WaitOpened tells why. It returns an error only if the client is gone.
func (e *early) pump(c net.Conn, st *tunnel.Stream) error {
	if len(e.buf) > 0 && !sent(st, e.buf) {
		return nil
	}
	for len(e.buf) < earlyLimit && !e.eof {
		n, err := e.read(c)
		if n > 0 && !sent(st, e.buf[len(e.buf)-n:]) {
			return nil
		}
		switch {
		case err == nil || errors.Is(err, io.EOF):
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return err
		}
	}
	return nil
}

func sent(st *tunnel.Stream, b []byte) bool {
	_, err := st.Write(b)
	return err == nil
}

// read keeps what one Read returns.
func (e *early) read(c net.Conn) (int, error) {
	switch {
	case e.buf == nil:
		e.first = firstBuffers.Get().(*[earlyRead]byte)
		e.buf = e.first[:0]
	case cap(e.buf)-len(e.buf) < earlyRoom:
		grown := make([]byte, len(e.buf), min(4*cap(e.buf), earlyLimit+earlyRead))
		copy(grown, e.buf)
		e.buf = grown
	}
	n, err := c.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	e.eof = errors.Is(err, io.EOF)
	return n, err
}

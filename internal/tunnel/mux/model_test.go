// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// modelHalf is the model of one end of a stream.
type modelHalf struct {
	st       *mux.Stream
	peer     *modelHalf
	name     string
	unread   []byte // sent by the peer and not read
	closed   bool   // by CloseWrite of this end
	reset    bool   // by this end
	gotReset bool   // by the peer
	code     uint32
}

// ended reports whether both directions of the stream have ended.
func (h *modelHalf) ended() bool {
	return h.reset || h.gotReset || (h.closed && h.peer.closed)
}

// model drives two sessions with random operations that need not wait, and compares every result.
type model struct {
	t     *testing.T
	r     *rand.Rand
	sides [2]*mux.Session
	ends  []*modelHalf
	seed  int
}

// TestStream_MatchesModel compares two sessions with byte slices.
func TestStream_MatchesModel(t *testing.T) {
	t.Parallel()
	for seed := range 40 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &model{t: t, r: rand.New(rand.NewPCG(uint64(seed), 3))}
				limit := []int{0, 100, 70 << 10}[seed%3]
				m.sides[0], m.sides[1] = newSessionPair(t, limit, mux.Config{Window: initialWindow})
				for range 400 {
					m.step()
					if t.Failed() {
						return
					}
				}
				m.finish()
			})
		})
	}
}

func (m *model) step() {
	if len(m.ends) < 2 || (len(m.ends) < 16 && m.r.IntN(10) == 0) {
		m.open()
		return
	}
	h := m.ends[m.r.IntN(len(m.ends))]
	switch op := m.r.IntN(100); {
	case op < 40:
		m.write(h)
	case op < 80:
		m.read(h)
	case op < 84:
		m.closeWrite(h)
	case op < 86:
		m.doReset(h)
	case op < 90 && h.ended():
		m.release(h)
	case op < 92:
		_, err := m.sides[0].Ping()
		noError(m.t, "Ping", err)
	case op < 95:
		time.Sleep(time.Duration(m.r.IntN(int(time.Minute))))
	}
	synctest.Wait()
}

func (m *model) bytes(most int) []byte {
	m.seed++
	return randomBytes(m.seed, m.r.IntN(most))
}

func (m *model) open() {
	from := m.r.IntN(2)
	first := m.bytes(3000)
	if m.r.IntN(3) == 0 {
		first = nil
	}
	here, there := openStream(m.t, m.sides[from], m.sides[1-from], string(first))
	a := &modelHalf{st: here, name: fmt.Sprintf("opener of %d", here.ID())}
	b := &modelHalf{st: there, name: fmt.Sprintf("acceptor of %d", here.ID()), peer: a, unread: first}
	a.peer = b
	m.ends = append(m.ends, a, b)
}

// wantError returns the error that a call on h must return; nil if it must succeed.
func (h *modelHalf) wantError(err error) error {
	var r *mux.ResetError
	switch {
	//nolint:errorlint // bare
	case h.reset && err == net.ErrClosed, h.gotReset && errors.As(err, &r) && r.Code == h.code:
		return nil
	}
	return fmt.Errorf("another error: %w", err)
}

func (m *model) write(h *modelHalf) {
	p := m.bytes(1 << m.r.IntN(17))
	if len(h.peer.unread)+len(p) > initialWindow/2 { // it might wait: half of a window is not given back yet
		return
	}
	n, err := h.st.Write(p)
	switch {
	case (h.reset || h.gotReset) && !h.closed:
		if len(p) > 0 && (n != 0 || h.wantError(err) != nil) {
			m.t.Errorf("%s: Write after a reset: %d, %v", h.name, n, err)
		}
	case h.closed:
		if len(p) > 0 && (n != 0 || err != net.ErrClosed) { //nolint:errorlint // bare
			m.t.Errorf("%s: Write after CloseWrite: %d, %v", h.name, n, err)
		}
	case n != len(p) || err != nil:
		m.t.Errorf("%s: Write of %d: %d, %v", h.name, len(p), n, err)
	default:
		h.peer.unread = append(h.peer.unread, p...)
	}
}

func (m *model) read(h *modelHalf) {
	synctest.Wait()
	noError(m.t, "SetReadDeadline", h.st.SetReadDeadline(time.Now().Add(time.Second))) // that nothing waits for ever
	var got []byte
	var err error
	if m.r.IntN(2) == 0 {
		p := make([]byte, 1+m.r.IntN(1<<m.r.IntN(18)))
		var n int
		n, err = h.st.Read(p)
		got = p[:n]
	} else {
		got, err = h.st.Next()
	}
	switch {
	// the end came before any reset
	case h.peer.closed && len(h.unread) == 0 && len(got) == 0 && errors.Is(err, io.EOF):
	case h.reset || h.gotReset:
		if !bytes.HasPrefix(h.unread, got) || (len(got) == 0 && h.wantError(err) != nil) {
			m.t.Errorf("%s: reading after a reset: %d bytes, %v", h.name, len(got), err)
		}
		h.unread = h.unread[len(got):]
	case len(h.unread) > 0:
		if err != nil || len(got) == 0 || !bytes.HasPrefix(h.unread, got) {
			m.t.Errorf("%s: reading with %d bytes there: %d, %v", h.name, len(h.unread), len(got), err)
			return
		}
		h.unread = h.unread[len(got):]
	case len(got) > 0 || err != os.ErrDeadlineExceeded: //nolint:errorlint // bare
		m.t.Errorf("%s: reading nothing: %d, %v", h.name, len(got), err)
	}
}

func (m *model) closeWrite(h *modelHalf) {
	err := h.st.CloseWrite()
	if !h.reset && !h.gotReset {
		noError(m.t, h.name+": CloseWrite", err)
		h.closed = true
	}
}

func (m *model) doReset(h *modelHalf) {
	was := h.ended()
	code := m.r.Uint32()
	noError(m.t, h.name+": Reset", h.st.Reset(code))
	time.Sleep(lazily)
	synctest.Wait()
	if was {
		return
	}
	h.reset, h.peer.gotReset, h.peer.code = true, true, code
}

func (m *model) release(h *modelHalf) {
	h.st.Release()
	h.peer.st.Release()
	for i := 0; i < len(m.ends); i++ {
		if m.ends[i] == h || m.ends[i] == h.peer {
			m.ends = append(m.ends[:i], m.ends[i+1:]...)
			i--
		}
	}
}

// finish reads everything to its end.
func (m *model) finish() {
	for _, h := range m.ends {
		noError(m.t, "SetReadDeadline", h.st.SetReadDeadline(time.Time{}))
		if !h.reset && !h.gotReset {
			noError(m.t, h.name+": CloseWrite", h.st.CloseWrite())
		}
	}
	for _, h := range m.ends {
		got, err := io.ReadAll(h.st)
		if !h.reset && !h.gotReset && (err != nil || !bytes.Equal(got, h.unread)) {
			m.t.Errorf("%s: at the end %d bytes and %v, want %d", h.name, len(got), err, len(h.unread))
		}
		h.st.Release()
	}
	time.Sleep(lazily)
	synctest.Wait()
	for _, s := range m.sides {
		wantAlive(m.t, s)
		if n, q := s.NumStreams(), s.Queued(); n != 0 || q != 0 {
			m.t.Errorf("%d streams and %d queued bytes remain", n, q)
		}
	}
}

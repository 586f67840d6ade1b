// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// The protocol, written down once more so that a mistake of the package is not repeated here.
const (
	typeData   = 0
	typeWindow = 1
	typePing   = 2
	typeGoAway = 3

	flagSYN = 1
	flagACK = 2
	flagFIN = 4
	flagRST = 8

	headerSize = 12
)

type frame struct {
	version, kind uint8
	flags         uint16
	id, length    uint32 // of data frames: length is 0, and the length of data is sent, unless a test sets a wrong one
	data          []byte
}

func (f frame) String() string {
	return fmt.Sprintf("{v%d type %d flags %d id %d length %d}", f.version, f.kind, f.flags, f.id, f.length)
}

func (f frame) append(b []byte) []byte {
	length := f.length
	if f.kind == typeData && length == 0 {
		length = uint32(len(f.data))
	}
	b = append(b, f.version, f.kind)
	b = binary.BigEndian.AppendUint16(b, f.flags)
	b = binary.BigEndian.AppendUint32(b, f.id)
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, f.data...)
}

func bytesOf(frames ...frame) []byte {
	var b []byte
	for _, f := range frames {
		b = f.append(b)
	}
	return b
}

// parse takes whole frames off b.
func parse(b []byte) (frames []frame, rest []byte) {
	for len(b) >= headerSize {
		f := frame{version: b[0], kind: b[1], flags: binary.BigEndian.Uint16(b[2:]), id: binary.BigEndian.Uint32(b[4:]),
			length: binary.BigEndian.Uint32(b[8:])}
		end := headerSize
		if f.kind == typeData {
			end += int(f.length)
		}
		if len(b) < end {
			break
		}
		f.data = bytes.Clone(b[headerSize:end])
		frames, b = append(frames, f), b[end:]
	}
	return frames, b
}

// rawPeer speaks to a session in frames of the test's making.
type rawPeer struct {
	t *testing.T
	c *memConn

	mu   sync.Mutex
	got  []byte // not yet taken
	gone bool
}

// hostile starts a session as the server, whose peer is the test; the peer reads all the time.
func hostile(t *testing.T, cfg mux.Config) (*mux.Session, *rawPeer) {
	a, b := pipe(0)
	p := &rawPeer{t: t, c: b}
	s := newSession(t, a, cfg)
	t.Cleanup(func() { _ = b.Close() })
	go p.listen()
	return s, p
}

func (p *rawPeer) listen() {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.c.Read(buf)
		p.mu.Lock()
		p.got = append(p.got, buf[:n]...)
		p.gone = p.gone || errors.Is(err, io.EOF)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes frames; that the session has ended meanwhile is no fault.
func (p *rawPeer) send(frames ...frame) {
	_, _ = p.c.Write(bytesOf(frames...))
}

// lazily is how long a frame that is in no hurry may wait for company; more than the package's own
// figure.
const lazily = 20 * time.Millisecond

// frames waits until nothing moves and returns what the session has sent since the last call.
func (p *rawPeer) frames() []frame {
	p.t.Helper()
	time.Sleep(lazily)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	frames, rest := parse(p.got)
	if len(rest) > 0 && !p.gone {
		p.t.Errorf("half a frame: % x", rest[:min(len(rest), 40)])
	}
	p.got = nil
	return frames
}

// wants sends frames and fails unless the answer has one like want (kind, flags, id, length).
func (p *rawPeer) wants(want frame, frames ...frame) {
	p.t.Helper()
	p.send(frames...)
	got := p.frames()
	for _, f := range got {
		if f.kind == want.kind && f.flags == want.flags && f.id == want.id && f.length == want.length {
			return
		}
	}
	p.t.Errorf("no frame %v among %v", want, got)
}

// answer answers the pings among frames: a session measures round trips.
func (p *rawPeer) answer(frames []frame) {
	for _, f := range frames {
		if isPing(f) {
			p.send(frame{kind: typePing, flags: flagACK, length: f.length})
		}
	}
	synctest.Wait()
}

// count returns how many frames satisfy ok.
func count(frames []frame, ok func(frame) bool) (n int) {
	for _, f := range frames {
		if ok(f) {
			n++
		}
	}
	return n
}

// payload joins the data frames of a stream.
func payload(frames []frame, id uint32) (data []byte) {
	for _, f := range frames {
		if f.kind == typeData && f.id == id {
			data = append(data, f.data...)
		}
	}
	return data
}

// begun returns the frames of the writes that have begun and were not returned before, write by
// write.
func (g *gate) begun(t *testing.T) [][]frame {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var all [][]frame
	for _, w := range g.writes {
		frames, rest := parse(w)
		if len(rest) > 0 || len(frames) == 0 {
			t.Errorf("a write of %d bytes is not of whole frames: % x ...", len(w), rest[:min(len(rest), 40)])
		}
		for _, f := range frames {
			if f.kind == typeData && f.length > maxFrame {
				t.Errorf("a data frame of %d bytes", f.length)
			}
		}
		if frames = slices.DeleteFunc(frames, isPing); len(frames) > 0 { // pings have times of their own
			all = append(all, frames)
		}
	}
	g.writes = nil
	return all
}

// next lets the write through that waits and returns the one that begins then; nil if none does.
func (g *gate) next(t *testing.T) []frame {
	t.Helper()
	synctest.Wait()
	select {
	case g.pass <- struct{}{}:
	default:
		t.Fatal("nothing is being written")
	}
	switch begun := g.begun(t); len(begun) {
	case 0:
		return nil
	case 1:
		return begun[0]
	default:
		t.Fatalf("%d writes at a time", len(begun))
		return nil
	}
}

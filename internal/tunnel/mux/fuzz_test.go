// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// FuzzFrames feeds a session any bytes. It must end with its connection at once, and what is read
// from a stream must be a prefix of what was sent to it, and all of it if the stream ended.
func FuzzFrames(f *testing.F) {
	f.Add(bytesOf(syn(1, "hello"), frame{kind: typeData, flags: flagFIN, id: 1, data: []byte(" world")}), false)
	f.Add(bytesOf(syn(1, "a"), syn(3, "b"), frame{kind: typeWindow, id: 1, length: 1 << 20},
		frame{kind: typeWindow, flags: flagRST, id: 3, length: 7}), false)
	f.Add(bytesOf(frame{kind: typePing, flags: flagSYN, length: 9}, frame{kind: typeGoAway}), false)
	f.Add(bytesOf(frame{kind: typeData, flags: flagACK, id: 2, data: []byte("to yours")},
		frame{kind: typeWindow, flags: flagFIN, id: 2}), false)
	f.Add([]byte{0, 1, 1, 9, 0, 0, 1, 200, 0, 4, 1, 3, 1, 0, 2, 0, 0, 2, 2, 50}, true)
	f.Add(randomBytes(11, 400), true)
	f.Add([]byte("09C001C0"), true) // a number again while its first stream is let go
	f.Add([]byte("\xf4$20"), true)  // an end with bytes that do not come
	f.Fuzz(func(t *testing.T, input []byte, script bool) {
		if script {
			input = fromScript(input)
		}
		synctest.Test(t, func(t *testing.T) { feedFrames(t, input) })
	})
}

// fromScript turns each four bytes into a plausible frame.
func fromScript(script []byte) []byte {
	var b []byte
	for ; len(script) >= 4; script = script[4:] {
		f := frame{kind: script[0] & 3, flags: uint16(script[1] & 15), id: uint32(script[2] & 7),
			length: uint32(script[3])}
		switch {
		case script[0]&0xc0 == 0xc0:
			f.length <<= 24
		case f.kind == typeGoAway && script[0] != 0xbf: // else it would be over too soon
			f.kind = typeData
			fallthrough
		case f.kind == typeData:
			f.data = randomBytes(int(f.id)<<8+len(script), int(f.length)*int(1+script[0]>>2))
			f.length = 0
		}
		b = f.append(b)
	}
	return b
}

// TestSession_SurvivesRandomFrames runs FuzzFrames' check with random scripts.
func TestSession_SurvivesRandomFrames(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		script := make([]byte, 4*r.IntN(60))
		for i := range script {
			script[i] = byte(r.Uint32())
			if i%4 == 1 && r.IntN(3) > 0 {
				script[i] &= flagSYN | flagACK // ends are rarer
			}
			if i%4 == 0 && r.IntN(8) > 0 {
				script[i] &= 0x3d // data and windows
			}
		}
		synctest.Test(t, func(t *testing.T) { feedFrames(t, fromScript(script)) })
	}
}

// checkedReader reads one stream.
type checkedReader struct {
	id  uint32
	got bytes.Buffer
	err error
}

func (r *checkedReader) run(st *mux.Stream) {
	p := make([]byte, 3000)
	for r.err == nil {
		var n int
		var q []byte
		if r.got.Len()%2 == 0 {
			n, r.err = st.Read(p)
			q = p[:n]
		} else {
			q, r.err = st.Next()
		}
		r.got.Write(q)
	}
	_, _ = st.Write(r.got.Bytes()[:min(r.got.Len(), 10)])
	_ = st.CloseWrite()
	st.Release()
}

func feedFrames(t *testing.T, input []byte) {
	a, b := pipe(0)
	s := newSession(t, a, mux.Config{MaxStreams: 5, MaxWindow: 1 << 20})
	var mu sync.Mutex
	var readers []*checkedReader
	take := func(st *mux.Stream) {
		mu.Lock()
		defer mu.Unlock()
		r := &checkedReader{id: st.ID()}
		readers = append(readers, r)
		go r.run(st)
	}
	s.Serve(take)
	for range 2 { // 2 and 4
		st, err := s.Open(t.Context(), []byte("hello"))
		noError(t, "Open", err)
		take(st)
	}
	begun := time.Now()
	_, _ = b.Write(input)
	synctest.Wait()
	_ = b.Close()
	_ = awaitEnd(t, s)
	synctest.Wait()
	if d := time.Since(begun); d > 0 {
		t.Errorf("it took %v", d)
	}
	if n := s.NumStreams(); n != 0 {
		t.Errorf("%d streams after the end", n)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, r := range readers {
		r.check(t, input)
	}
}

// check compares with what was sent to the stream.
func (r *checkedReader) check(t *testing.T, input []byte) {
	if r.err == nil {
		t.Errorf("the reader of stream %d still waits", r.id)
		return
	}
	var lives [][]byte // a number may be used again when its stream is over
	var sent []byte
	ended := false
	frames, rest := parse(input)
	if len(rest) >= headerSize && rest[1] == typeData { // the last one came in part
		last, _ := parse(append(bytes.Clone(rest), make([]byte, min(int(be32(rest[8:])), 1<<21))...))
		for _, f := range last[:min(1, len(last))] {
			f.data = f.data[:min(len(f.data), len(rest)-headerSize)]
			f.flags &^= flagFIN
			frames = append(frames, f)
		}
	}
	for _, f := range frames {
		if f.id != r.id || f.kind > typeWindow {
			continue
		}
		if f.flags&flagSYN != 0 {
			lives, sent, ended = append(lives, sent), nil, false
		}
		if f.kind == typeData && !ended {
			sent = append(sent, f.data...)
		}
		ended = ended || f.flags&flagFIN != 0
		if ended && errors.Is(r.err, io.EOF) && bytes.Equal(sent, r.got.Bytes()) {
			return
		}
	}
	for _, sent := range append(lives, sent) {
		if !errors.Is(r.err, io.EOF) && bytes.HasPrefix(sent, r.got.Bytes()) {
			return
		}
	}
	t.Errorf("stream %d: %d bytes and %v are not what was sent to it", r.id, r.got.Len(), r.err)
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

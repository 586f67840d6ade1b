// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// read takes frames until the connection ends.
func (s *Session) read() error {
	in := bufio.NewReaderSize(listener{s}, readBuffer)
	var h header
	for {
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return err
		}
		if h.version() != 0 {
			return fmt.Errorf("a frame of version %d, not 0", h.version())
		}
		if err := s.take(&h, in); err != nil {
			return err
		}
	}
}

// listener is the connection; it notes that something was heard.
type listener struct{ *Session }

func (l listener) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if n > 0 {
		if l.heard.Load() != heardByKeepAlive|heardByWatch {
			l.heard.Store(heardByKeepAlive | heardByWatch)
		}
		if l.watch.unresponsive.Load() {
			l.isResponsive()
		}
	}
	return n, err
}

func (s *Session) take(h *header, in *bufio.Reader) error {
	switch h.kind() {
	case typeData, typeWindow:
		return s.takeStream(h, in)
	case typePing:
		if h.flags()&flagSYN != 0 {
			return s.answer(typePing, flagACK, 0, h.length(), async)
		}
		s.answered(h.length())
		return nil
	case typeGoAway:
		return fmt.Errorf("the peer gives the connection up, with code %d", h.length())
	default:
		return fmt.Errorf("a frame of unknown type %d", h.kind())
	}
}

func (s *Session) takeStream(h *header, in *bufio.Reader) error {
	if h.flags()&flagSYN != 0 {
		if err := s.incoming(h.id()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	st := s.streams[h.id()]
	s.mu.Unlock()
	if st == nil { // it was reset, or never was
		if h.kind() == typeData {
			_, err := io.CopyN(io.Discard, in, int64(h.length()))
			return err
		}
		return nil
	}
	if h.flags()&flagACK != 0 && st.unacknowledged.Swap(false) {
		<-s.opening
	}
	var err error
	switch {
	case h.kind() == typeData:
		err = st.receive(in, h.length())
	case h.flags()&flagRST == 0:
		err = st.grant(h.length())
	}
	if err != nil {
		return err
	}
	if h.flags()&flagRST != 0 {
		code := uint32(0)
		if h.kind() == typeWindow {
			code = h.length()
		}
		st.wasReset(code)
	}
	if h.flags()&flagFIN != 0 {
		st.peerEnded()
	}
	return nil
}

// incoming takes a new stream of the peer's.
func (s *Session) incoming(id uint32) error {
	if id == 0 || s.cfg.Client == (id%2 == 1) {
		return fmt.Errorf("the peer opened a stream with number %d, which is not one of its own", id)
	}
	s.mu.Lock()
	_, taken := s.streams[id]
	switch {
	case s.err != nil:
		defer s.mu.Unlock()
		return s.err
	case taken:
		s.mu.Unlock()
		return fmt.Errorf("the peer opened stream %d twice", id)
	case s.foreign >= s.cfg.MaxStreams, s.serve == nil && len(s.accepted) >= s.cfg.Backlog:
		s.mu.Unlock()
		return s.answer(typeWindow, flagRST, id, 0, async)
	}
	st := newStream(s, id, false)
	s.streams[id] = st
	s.foreign++
	serve := s.serve
	if serve == nil {
		s.accepted = append(s.accepted, st)
	}
	s.mu.Unlock()
	if err := s.answer(typeWindow, flagACK, id, st.extra, whenDue); err != nil {
		return err
	}
	if serve != nil {
		serve(st)
	} else {
		wake(s.news)
	}
	return nil
}

// receive takes the payload of a data frame.
func (st *Stream) receive(in *bufio.Reader, length uint32) error {
	st.mu.Lock()
	credit := st.credit
	st.credit -= min(length, credit)
	open := st.readErr == nil
	st.mu.Unlock()
	switch {
	case length > credit:
		return fmt.Errorf("the peer sent %d bytes on stream %d, and might send %d", length, st.id, credit)
	case !open:
		_, err := io.CopyN(io.Discard, in, int64(length))
		return err
	}
	for left := int(length); left > 0; {
		var n int
		var err error
		if left <= readBuffer {
			n, err = st.receiveLittle(in, left)
		} else {
			n, err = st.receiveMuch(in, left)
		}
		if err != nil {
			return err
		}
		left -= n
		wake(st.readable)
	}
	return nil
}

func (st *Stream) receiveLittle(in *bufio.Reader, n int) (int, error) {
	p, err := in.Peek(n)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	if st.readErr == nil {
		st.in.copyIn(p)
	}
	st.mu.Unlock()
	return in.Discard(n)
}

// receiveMuch reads into a chunk for the stream's reader to have as it is.
func (st *Stream) receiveMuch(in *bufio.Reader, n int) (int, error) {
	c := newChunk(n)
	n, err := io.ReadFull(in, c.buf[:min(n, len(c.buf))])
	if err != nil {
		return n, err
	}
	c.w = n
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readErr == nil {
		st.in.add(c)
	} else {
		c.free()
	}
	return n, nil
}

// grant takes a window update.
func (st *Stream) grant(delta uint32) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if delta > math.MaxUint32-st.room {
		return fmt.Errorf("the peer allows more than %d bytes on stream %d", uint32(math.MaxUint32), st.id)
	}
	st.room += delta
	wake(st.writable)
	return nil
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// readFrames handles frames until the connection ends.
func (s *Session) readFrames() error {
	in := bufio.NewReaderSize(activityReader{s}, readBuffer)
	var h header
	for {
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return err
		}
		if h.version() != 0 {
			return fmt.Errorf("a frame of version %d, not 0", h.version())
		}
		if err := s.handleFrame(&h, in); err != nil {
			return err
		}
	}
}

// activityReader reads from the connection and records that bytes have arrived.
type activityReader struct{ *Session }

func (l activityReader) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if w := &l.monitor; n > 0 {
		if w.activity.Load() != keepAliveActivity|monitorActivity {
			w.activity.Store(keepAliveActivity | monitorActivity)
		}
		if w.unresponsive.Load() {
			w.markResponsive()
		}
	}
	return n, err
}

func (s *Session) handleFrame(h *header, in *bufio.Reader) error {
	switch h.kind() {
	case typeData, typeWindow:
		return s.handleStreamFrame(h, in)
	case typePing:
		if h.flags()&flagSYN != 0 {
			return s.sendq.sendReply(typePing, flagACK, 0, h.length(), flushAsync)
		}
		s.ping.handlePong(h.length())
		return nil
	case typeGoAway:
		return fmt.Errorf("the peer gives the connection up, with code %d", h.length())
	default:
		return fmt.Errorf("a frame of unknown type %d", h.kind())
	}
}

func (s *Session) handleStreamFrame(h *header, in *bufio.Reader) error {
	if h.flags()&flagSYN != 0 {
		if err := s.handleSYN(h.id()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	st := s.streams[h.id()]
	s.mu.Unlock()
	if st == nil { // it was reset or never existed
		if h.kind() == typeData {
			_, err := io.CopyN(io.Discard, in, int64(h.length()))
			return err
		}
		return nil
	}
	if h.flags()&flagACK != 0 && st.unacknowledged.Swap(false) {
		<-s.synSlots
	}
	var err error
	switch {
	case h.kind() == typeData:
		err = st.receiveData(in, h.length())
	case h.flags()&flagRST == 0:
		err = st.growSendWindow(h.length())
	}
	if err != nil {
		return err
	}
	if h.flags()&flagRST != 0 {
		code := uint32(0)
		if h.kind() == typeWindow {
			code = h.length()
		}
		st.handleRST(code)
	}
	if h.flags()&flagFIN != 0 {
		st.handleFIN()
	}
	return nil
}

// handleSYN adds a stream that the peer opens.
func (s *Session) handleSYN(id uint32) error {
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
	case s.remoteStreams >= s.cfg.MaxStreams, s.serveFunc == nil && len(s.accepted) >= s.cfg.Backlog:
		s.mu.Unlock()
		return s.sendq.sendReply(typeWindow, flagRST, id, 0, flushAsync)
	}
	st := newStream(s, id, false)
	s.streams[id] = st
	s.remoteStreams++
	serve := s.serveFunc
	if serve == nil {
		s.accepted = append(s.accepted, st)
	}
	s.mu.Unlock()
	if err := s.sendq.sendReply(typeWindow, flagACK, id, st.extraWindow, flushDelayed); err != nil {
		return err
	}
	if serve != nil {
		serve(st)
	} else {
		wake(s.acceptReady)
	}
	return nil
}

// receiveData reads the payload of a data frame.
func (st *Stream) receiveData(in *bufio.Reader, length uint32) error {
	st.mu.Lock()
	credit := st.recvWindow
	st.recvWindow -= min(length, credit)
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
			n, err = st.receiveSmall(in, left)
		} else {
			n, err = st.receiveLarge(in, left)
		}
		if err != nil {
			return err
		}
		left -= n
		wake(st.readable)
	}
	return nil
}

func (st *Stream) receiveSmall(in *bufio.Reader, n int) (int, error) {
	p, err := in.Peek(n)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	if st.readErr == nil {
		st.recv.appendCopy(p)
	}
	st.mu.Unlock()
	return in.Discard(n)
}

// receiveLarge reads into a new chunk, which the stream's owner gets without a copy.
func (st *Stream) receiveLarge(in *bufio.Reader, n int) (int, error) {
	c := newChunk(n)
	n, err := io.ReadFull(in, c.buf[:min(n, len(c.buf))])
	if err != nil {
		return n, err
	}
	c.w = n
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readErr == nil {
		st.recv.appendChunk(c)
	} else {
		c.free()
	}
	return n, nil
}

// growSendWindow handles a window update.
func (st *Stream) growSendWindow(delta uint32) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if delta > math.MaxUint32-st.sendWindow {
		return fmt.Errorf("the peer allows more than %d bytes on stream %d", uint32(math.MaxUint32), st.id)
	}
	st.sendWindow += delta
	wake(st.writable)
	return nil
}

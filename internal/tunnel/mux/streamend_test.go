// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// mute is a connection on which nothing comes and everything goes.
type mute struct {
	closed chan struct{}
	once   sync.Once
	last   func()        // what Close waits for
	slow   time.Duration // what a write takes
}

func newMute() *mute { return &mute{closed: make(chan struct{}), last: func() {}} }

func (m *mute) Read([]byte) (int, error) {
	<-m.closed
	return 0, errors.New("closed")
}
func (m *mute) WriteFrames(_, _ []byte) error {
	time.Sleep(m.slow)
	return nil
}
func (m *mute) SetWriteDeadline(_ time.Time) error { return nil }
func (m *mute) Close() error {
	m.last()
	m.once.Do(func() { close(m.closed) })
	return nil
}

// TestSession_ForgetsResetStream covers a goroutine that ends a stream and is delayed before it
// removes the stream. A concurrent Reset of the owner must remove it then, as the owner is not
// notified again.
func TestSession_ForgetsResetStream(t *testing.T) {
	t.Parallel()
	s := New(newMute(), Config{Client: true})
	defer s.Close(nil)
	for name, begin := range map[string]func(*Stream){
		"the peer has reset it": func(st *Stream) { st.setErrors(&ResetError{}, true) },
		"it is over in both directions": func(st *Stream) {
			_ = st.CloseWrite()
			st.mu.Lock()
			st.readErr = errors.New("end")
			st.mu.Unlock()
		},
	} {
		st, err := s.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		begin(st)
		if err := st.Reset(0); err != nil {
			t.Fatal(err)
		}
		if n, waiting := s.NumStreams(), len(s.synSlots); n != 0 || waiting != 0 {
			t.Errorf("%s: %d streams and %d openings after a Reset, want none", name, n, waiting)
		}
	}
}

// TestSession_EndsStreamsBeforeConnection checks that streams do not wait for their connection: one
// with TLS whose peer is gone takes seconds to be closed.
func TestSession_EndsStreamsBeforeConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := newMute()
		conn.last = func() { time.Sleep(5 * time.Second) }
		s := New(conn, Config{Client: true})
		st, err := s.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.Close(nil)
		}()
		if _, err := st.Read(make([]byte, 1)); err == nil {
			t.Error("read from a stream whose connection is closed")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a reader learned of the end of its connection after %v, want at once", took)
		}
		<-over // not a Close beside the other: a mutex holds the clock of the test
	})
}

func TestSession_EndsWhenIDsAreUsedUp(t *testing.T) {
	t.Parallel()
	s := New(newMute(), Config{Client: true})
	defer s.Close(nil)
	s.mu.Lock()
	s.nextID = math.MaxUint32 - 2
	s.mu.Unlock()
	st, err := s.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), nil); !errors.Is(err, errNoStreamID) {
		t.Errorf("opening one stream too many: %v, want that there is no number left", err)
	}
	if s.Err() == nil {
		t.Error("the session lives on and can open nothing")
	}
	if _, err := st.Write([]byte("x")); err == nil {
		t.Error("wrote to a stream of a session that has ended")
	}
}

// TestSendQueue_SlowWriterLeavesOthersFrames checks that an Open whose context ends and a Write
// whose deadline passes need not wait for frames of others. Neither can end a write to the
// connection.
func TestSendQueue_SlowWriterLeavesOthersFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := newMute()
		conn.slow = 10 * time.Second
		s := New(conn, Config{Client: true})
		time.Sleep(11 * time.Second) // its first ping is written
		synctest.Wait()
		began, left := time.Now(), time.Duration(0)
		opened := make(chan error)
		go func() {
			_, err := s.Open(t.Context(), nil)
			left = time.Since(began)
			opened <- err
		}()
		synctest.Wait()
		for range 4 { // while each write is under way, others leave something
			s.sendq.sendControl(typePing, flagSYN, 0, 7, flushAsync)
			time.Sleep(10*time.Second - 1)
		}
		if err := <-opened; err != nil || left != 10*time.Second {
			t.Errorf("opened after %v: %v, want as soon as its own frame was written", left, err)
		}
		s.Close(nil)
		time.Sleep(time.Minute) // what is being written is not cut by this connection
	})
}

func TestSendQueue_LimitsDelayedFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(newMute(), Config{Client: true})
		defer s.Close(nil)
		synctest.Wait() // its first ping is written
		st, err := s.OpenLater(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			if _, err := st.WriteLater(make([]byte, smallPayload)); err != nil {
				t.Fatal(err)
			}
			s.sendq.mu.Lock()
			waiting := s.sendq.pending.len()
			s.sendq.mu.Unlock()
			if most := maxPending + smallPayload + 2*headerSize; waiting > most {
				t.Fatalf("%d bytes wait to go out in company, want at most %d", waiting, most)
			}
		}
	})
}

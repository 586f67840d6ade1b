// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-yamux/v5"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// rawAgent is an agent with hashicorp's yamux, whose control stream the test reads.
func rawAgent(t *testing.T, h *testServer) (*Session, *yamux.Stream) {
	t.Helper()
	_, st := rawControlStream(t, h.rawTLSConn(t))
	if _, err := io.WriteString(st, encodeFrame(`{"type":"hello","protocol":1,"hello":{"role":"agent"}}`)); err != nil {
		t.Fatal(err)
	}
	if m, err := parseMessage(nextMessage(t, st)); err != nil || m.Type != typeWelcome {
		t.Fatalf("the answer to the hello is %+v, %v", m, err)
	}
	return wait.Receive(t, "the session", h.handler.ups), st
}

func nextMessage(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := readFrame(r, nil, messageLimit, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func firstLink(s *Session) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links.active[0]
}

func TestRequestLines_SendWaitingTogether(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	far, st := rawAgent(t, h)
	var want, got []RequestLine
	busy := &firstLink(far).ctrl.mu
	busy.Lock()
	for i := range 100 {
		l := fullLine()
		l.Path = fmt.Sprintf("/%d", i)
		want = append(want, l)
		far.SendRequestLine(l)
	}
	busy.Unlock()
	messages := 0
	for ; len(got) < len(want); messages++ {
		lines, err := decodeLines(nextMessage(t, st))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, lines...)
	}
	if d := cmp.Diff(want, got); d != "" || messages > 3 { // that which had begun, and two
		t.Errorf("%d messages: %s", messages, d)
	}
}

// TestRequestLines_ArriveSoon checks that a line is delayed by at most 5 ms in the multiplexer and
// 2 ms after another message.
func TestRequestLines_ArriveSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		lines := make(chan RequestLine, 2)
		h.startClient(ClientConfig{Hello: agentHello, Connections: 1, OnRequestLine: func(l RequestLine) {
			lines <- l
		}}).
			awaitSession(t)
		far := <-h.handler.ups
		for gap := time.Duration(0); gap < 10*time.Millisecond; gap += 300 * time.Microsecond {
			time.Sleep(time.Second)
			began := time.Now()
			far.SendRequestLine(fullLine())
			<-lines
			// it is not written on its own account
			if d := time.Since(began); d > 5*time.Millisecond || d == 0 && gap == 0 {
				t.Errorf("it took %s", d)
			}
			time.Sleep(time.Second)
			far.SendRequestLine(fullLine())
			time.Sleep(gap)
			began = time.Now()
			far.SendRequestLine(fullLine())
			<-lines
			<-lines
			if d := time.Since(began); d > linesInterval+5*time.Millisecond {
				t.Errorf("%s behind another it took %s", gap, d)
			}
		}
	})
}

// TestRequestLines_PauseBetweenMessages checks that lines that arrive one by one are few messages,
// and that waiting lines are not delayed by more than one interval.
func TestRequestLines_PauseBetweenMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		far, st := rawAgent(t, h)
		read := func(n int) (messages int) {
			for ; n > 0; messages++ {
				lines, err := decodeLines(nextMessage(t, st))
				if err != nil {
					t.Fatal(err)
				}
				n -= len(lines)
			}
			return messages
		}
		far.SendRequestLine(fullLine())
		read(1)
		time.Sleep(time.Second)
		for range 200 {
			far.SendRequestLine(fullLine())
			time.Sleep(100 * time.Microsecond)
		}
		if n := read(200); n > 12 { // 20 ms
			t.Errorf("200 lines, one each 100 µs, were %d messages", n)
		}
		time.Sleep(time.Second)
		began := time.Now()
		for range cap(far.lines) {
			far.SendRequestLine(fullLine())
		}
		read(cap(far.lines))
		if d := time.Since(began); d > 5*time.Millisecond+linesInterval {
			t.Errorf("lines that came together took %s", d)
		}
	})
}

func TestRequestLines_KeepOrderWithMessages(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	type seen struct {
		path     string
		draining bool
	}
	lines := make(chan seen, 2)
	up := make(chan *Session, 1)
	r := h.startClient(ClientConfig{Hello: agentHello, Connections: 1,
		OnStream: func(_ context.Context, _ *Session, st *Stream) { echo(st) }, OnRequestLine: func(l RequestLine) {
			s := <-up
			up <- s
			select {
			case <-s.PeerDraining():
				lines <- seen{l.Path, true}
			default:
				lines <- seen{l.Path, false}
			}
		}})
	up <- r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	l := firstLink(far)
	// which keeps the session while the server drains
	if err := open(t, far).WaitOpened(timeoutContext(t)); err != nil {
		t.Fatal(err)
	}
	send := func(path string) {
		if err := l.ctrl.sendLater(appendLines(nil, &RequestLine{Path: path}, nil)); err != nil {
			t.Error(err)
		}
	}
	send("/before")
	if err := l.send(&message{Type: typeDrain, Drain: &drain{}}); err != nil {
		t.Error(err)
	}
	send("/after")
	for _, want := range []seen{{"/before", false}, {"/after", true}} {
		if got := wait.Receive(t, "a line", lines); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestClient_MalformedLinesEndConnection(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"\x01":           "request lines: the message has none",
		"\x01\x00\x09ab": "request lines: line 1 is cut off",
		"\x02\x00\x00":   "decoding a control message",
		"":               "decoding a control message",
	} {
		h := newTestServer(t, overTCP, newHandler())
		r := h.startClient(ClientConfig{Hello: agentHello, Connections: 1})
		r.awaitSession(t)
		l := firstLink(wait.Receive(t, "the session", h.handler.ups))
		if err := l.ctrl.sendLater([]byte(encodeFrame(message))); err != nil {
			t.Error(err)
		}
		if err := wait.Receive(t, "OnDown", r.downs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: OnDown(%v), want %q", message, err, want)
		}
	}
}

// TestServer_SkipsRequestLines checks that a server ignores request lines: they do not end the
// session.
func TestServer_SkipsRequestLines(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	s := h.startClient(ClientConfig{Hello: agentHello, Connections: 1}).awaitSession(t)
	s.SendRequestLine(fullLine())
	if err := firstLink(s).ctrl.sendLater(appendLines(nil, &RequestLine{}, nil)); err != nil {
		t.Error(err)
	}
	if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
}

// TestClient_SkipsLinesBeforeWelcome checks a joining connection, which may receive the session's
// lines before its welcome.
func TestClient_SkipsLinesBeforeWelcome(t *testing.T) {
	t.Parallel()
	cert, _ := authority()
	h := &testServer{t: t}
	r := h.startClient(ClientConfig{Connections: 1,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				c := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{ALPN}})
				mux, err := yamux.Server(c, yamux.DefaultConfig(), nil)
				if err != nil {
					return
				}
				defer func() { _ = mux.Close() }()
				st, err := mux.AcceptStream()
				if err != nil {
					return
				}
				if _, err := readFrame(st, nil, helloLimit, func(int) error { return nil }); err != nil {
					return
				}
				welcome, _ := json.Marshal(&message{Type: typeWelcome, Welcome: &Welcome{SessionID: "ts_1"}})
				_, _ = st.Write(append(appendLines(nil, &RequestLine{Path: "/"}, nil), encodeFrame(string(welcome))...))
				_, _ = io.Copy(io.Discard, st)
			}()
			return near, nil
		}})
	if s := r.awaitSession(t); s.ID() != "ts_1" {
		t.Errorf("session %s", s.ID())
	}
}

// TestRequestLines_StuckPeerIsClosed checks that a peer that takes no lines for 10 s is
// disconnected, although lines are sent with a delay and only the first one sets the timer.
func TestRequestLines_StuckPeerIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		far, st := rawAgent(t, h)
		long := RequestLine{Path: strings.Repeat("x", pathLimit)}
		for range 12 { // a peer that is only slow is not
			far.SendRequestLine(long)
			if _, err := decodeLines(nextMessage(t, st)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		began := time.Now()
		for range 10 { // 1.3 MiB, more than the window
			for range cap(far.lines) {
				far.SendRequestLine(long)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := far.Err(); err != nil {
			t.Fatalf("the session ended at once: %v", err)
		}
		wait.Receive(t, "the end", far.Done())
		if err := far.Err(); !strings.Contains(err.Error(), "took no control message for 10s") {
			t.Errorf("the session ended with %v", err)
		}
		if d := time.Since(began); d < controlTimeout || d > controlTimeout+2*time.Second {
			t.Errorf("given up after %s", d)
		}
	})
}

func TestWriteWatchdog_FiresOnSlowWriteOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watched := func() (*writeWatchdog, *link) {
			near, far := net.Pipe()
			l := newLink(t.Context(), newMuxConn(Batch(tls.Client(near, &tls.Config{})), nil),
				slog.New(slog.DiscardHandler), nil, true)
			t.Cleanup(func() { l.close(nil); _ = far.Close() })
			return &writeWatchdog{link: l}, l
		}
		w, l := watched()
		for _, pause := range []time.Duration{0, time.Second, 9 * time.Second, 10 * time.Second, 11 * time.Second,
			time.Minute} {
			for range 20 {
				w.begin()
				time.Sleep(9900 * time.Millisecond)
				w.end()
				time.Sleep(pause)
			}
		}
		if l.ctx.Err() != nil {
			t.Fatal("late, and no write took 10 s")
		}
		// whether the timer is set or not
		for _, before := range []time.Duration{0, 4 * time.Second, 10 * time.Second, time.Minute} {
			w, l := watched()
			w.begin()
			w.end()
			time.Sleep(before)
			synctest.Wait()
			w.begin()
			began := time.Now()
			<-l.ctx.Done()
			if d := time.Since(began); d != controlTimeout {
				t.Errorf("late after %s", d)
			}
			w.end()
		}
	})
}

// TestControl_MessageInPiecesLeavesNoDeadline checks that the deadline of the rest of a message
// does not apply to the next message.
func TestControl_MessageInPiecesLeavesNoDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		far, st := rawAgent(t, h)
		bind := encodeFrame(`{"type":"bind","id":1,"bind":{"url":"http://a.b"}}`)
		for _, part := range []string{bind[:10], bind[10:20], bind[20:]} {
			_, _ = io.WriteString(st, part)
			time.Sleep(4 * time.Second)
		}
		if m, err := parseMessage(nextMessage(t, st)); err != nil || m.Type != typeBound {
			t.Fatalf("the answer is %+v, %v", m, err)
		}
		time.Sleep(20 * time.Second)
		if far.Err() != nil {
			t.Fatalf("the session ended: %v", far.Err())
		}
		_, _ = st.Write(binary.BigEndian.AppendUint32(nil, 100))
		began := time.Now()
		wait.Receive(t, "the end", far.Done())
		if err := far.Err(); !strings.Contains(err.Error(), "did not finish a control message within 10s") ||
			time.Since(began) != controlTimeout {
			t.Errorf("the session ended after %s: %v", time.Since(began), err)
		}
	})
}

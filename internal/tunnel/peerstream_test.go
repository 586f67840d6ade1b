// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestServer_ReceivesRequestLinesOfClient(t *testing.T) {
	t.Parallel()
	type received struct {
		session *Session
		line    RequestLine
	}
	lines := make(chan received, 1)
	h := newTestServer(t, overTCP, newHandler())
	h.handler.requestLine = func(s *Session, l RequestLine) { lines <- received{s, l} }
	s := h.startClient(ClientConfig{}).awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	want := RequestLine{EndpointID: "ep_1", Method: "GET", Path: "/", Status: 200, At: time.Unix(1, 2).UTC()}
	s.SendRequestLine(want)
	if got := wait.Receive(t, "the line", lines); got.line != want || got.session != far {
		t.Errorf("received %+v of %p, want %+v of %p", got.line, got.session, want, far)
	}
}

func TestStream_OnRefusedIsCalledWithCode(t *testing.T) {
	t.Parallel()
	s := forwarderPair(t, overTCP, func(st *Stream) { _ = st.Refuse(RefusedUnresponsive) })
	st := open(t, s)
	var codes []RefuseCode
	st.OnRefused(func(c RefuseCode) { codes = append(codes, c) })
	for range 2 {
		if _, err := st.Read(make([]byte, 1)); !errors.Is(err, ErrUnresponsive) {
			t.Errorf("error %v, want one that is ErrUnresponsive", err)
		}
	}
	if len(codes) != 1 || codes[0] != RefusedUnresponsive {
		t.Errorf("called with %v, want %v once", codes, RefusedUnresponsive)
	}
	if errors.Is(&RefusedError{Code: RefusedOffline}, ErrUnresponsive) {
		t.Error("another refusal is ErrUnresponsive")
	}
}

func TestStream_BufferedCountsBytesThatFollowHeader(t *testing.T) {
	t.Parallel()
	counts := make(chan int, 1)
	s := forwarderPair(t, overTCP, func(st *Stream) {
		wait.Until(t, "the bytes that follow the header", func() bool { return st.Buffered() > 0 })
		counts <- st.Buffered()
		_ = st.Accept()
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{st})
	})
	st := open(t, s)
	if _, err := io.WriteString(st, "abc"); err != nil {
		t.Fatal(err)
	}
	if got := wait.Receive(t, "the count", counts); got != 3 {
		t.Errorf("%d bytes, want 3", got)
	}
}

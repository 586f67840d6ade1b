// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestMember_RelaysWithHalfClose(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(func(st *tunnel.Stream) {
		_ = st.Accept()
		b, err := io.ReadAll(struct{ io.Reader }{st})
		if err != nil {
			return
		}
		_, _ = st.Write(append(b, " answered"...))
		_ = st.CloseWrite()
	})
	m := asks.choose(t)
	if d := cmp.Diff(testHolder("ep-1").Endpoint, *m.Endpoint()); d != "" {
		t.Errorf("endpoint: %s", d)
	}
	st := open(t, m)
	send(t, st, "question")
	must.Succeed(t, st.CloseWrite())
	b, err := io.ReadAll(struct{ io.Reader }{st})
	if err != nil || string(b) != "question answered" {
		t.Errorf("read %q, %v", b, err)
	}
	holds.local.mu.Lock()
	got := holds.local.headers[0]
	holds.local.mu.Unlock()
	if got.EndpointID != "ep-1" || got.Host != "api.demo" || got.Port != 80 {
		t.Errorf("header %+v", got)
	}
}

func TestMember_RelaysAborts(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	asks, _ := newCluster(t).pair(func(st *tunnel.Stream) {
		b := make([]byte, 4)
		_, _ = io.ReadFull(st, b)
		if string(b) == "fail" { // without OPENED
			_ = st.Reset(tunnel.Aborted)
			return
		}
		_ = st.Accept()
		_, _ = st.Write(b)
		if string(b) == "mine" {
			_ = st.Reset(tunnel.Aborted)
			return
		}
		_, err := st.Read(b)
		ended <- err
	})
	m := asks.choose(t)
	for _, text := range []string{"mine", "fail"} {
		t.Run("of the agent: "+text, func(t *testing.T) {
			st := open(t, m)
			send(t, st, text)
			if _, err := io.ReadAll(struct{ io.Reader }{st}); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("error %v, want a reset", err)
			}
		})
	}
	t.Run("of the client", func(t *testing.T) {
		st := open(t, m)
		send(t, st, "then")
		if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		_ = st.Reset(tunnel.Aborted)
		if err := wait.Receive(t, "the agent's end", ended); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset", err)
		}
	})
}

func TestMember_PassesRefusalsOn(t *testing.T) {
	t.Parallel()
	codes := make(chan tunnel.RefuseCode, 1)
	asks, _ := newCluster(t).pair(func(st *tunnel.Stream) { _ = st.Refuse(<-codes) })
	m := asks.choose(t)
	for _, code := range []tunnel.RefuseCode{tunnel.RefusedUpstream, tunnel.RefusedMismatch, tunnel.RefusedInternal,
		tunnel.RefusedForbidden} {
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
			codes <- code
			st := open(t, m)
			if text != "" {
				_, _ = io.WriteString(st, text) // the refusal may have arrived already
			}
			var refused *tunnel.RefusedError
			_, err := st.Read(make([]byte, 1))
			if !errors.As(err, &refused) || refused.Code != code {
				t.Errorf("error %v, want a refusal with %v", err, code)
			}
		}
	}
	if m.Context().Err() != nil {
		t.Error("the member is gone after refusals of the agent")
	}
}

func TestMember_ReportsLinesToHolder(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	line := tunnel.RequestLine{Method: "GET", Path: "/x", Status: 200, At: time.Unix(5, 0).UTC()}
	asks.choose(t).Report(line)
	want := line
	want.EndpointID, want.Code = "ep-1", testAccount
	if got := wait.Receive(t, "the line", holds.local.lines); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestPeers_WaitRelayed waits for the streams of a peer, as a replica does that is about to stop.
func TestPeers_WaitRelayed(t *testing.T) {
	t.Parallel()
	asks, holds := newCluster(t).pair(echo)
	if err := holds.WaitRelayed(t.Context()); err != nil {
		t.Errorf("without a stream: %v", err)
	}
	m := asks.choose(t)
	first, second := openEchoed(t, m), openEchoed(t, m)
	waited := make(chan error, 2)
	for range cap(waited) {
		go func() { waited <- holds.WaitRelayed(t.Context()) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := holds.WaitRelayed(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with two streams: %v", err)
	}
	_ = first.Reset(tunnel.Aborted)
	_ = second.CloseWrite() // echo ends its side, too
	for range cap(waited) {
		if err := wait.Receive(t, "the end of the streams", waited); err != nil {
			t.Error(err)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testenv/closedport"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func newTCPPath(t *testing.T, upstream string) *edgePath {
	t.Helper()
	return edgePathTo(t, startServer(t), upstream, func(b *tunnel.Bind) {
		b.URL, b.UpstreamURL, b.UpstreamProtocol = "tcp://db.demo:5432", "tcp://"+upstream, ""
	})
}

func TestTCP_HalfClosesBothWays(t *testing.T) {
	t.Parallel()
	t.Run("the client first", func(t *testing.T) {
		t.Parallel()
		p := newTCPPath(t, serveTCP(t, func(c *net.TCPConn) {
			asked, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(asked))
		}))
		st := p.forwarder.open(openHeader(t, p.bound))
		_, _ = io.WriteString(st, "question")
		_ = st.CloseWrite()
		if got := readAll(t, st); got != "QUESTION" {
			t.Errorf("answer %q", got)
		}
	})
	t.Run("the upstream first", func(t *testing.T) {
		t.Parallel()
		got := make(chan string, 1)
		p := newTCPPath(t, serveTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "all I have to say")
			_ = c.CloseWrite()
			rest, _ := io.ReadAll(c)
			got <- string(rest)
		}))
		st := p.forwarder.open(openHeader(t, p.bound))
		if said := readAll(t, st); said != "all I have to say" { // it speaks first, and the client has sent nothing
			t.Errorf("greeting %q", said)
		}
		_, _ = io.WriteString(st, "still here")
		_ = st.CloseWrite()
		if rest := receive(t, got, "rest"); rest != "still here" {
			t.Errorf("after its end the upstream got %q", rest)
		}
	})
}

func TestTCP_PassesAborts(t *testing.T) {
	t.Parallel()
	t.Run("of the upstream", func(t *testing.T) {
		t.Parallel()
		cut := make(chan struct{})
		p := newTCPPath(t, serveTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "part")
			select {
			case <-cut:
			case <-t.Context().Done():
			}
			_ = c.SetLinger(0)
		}))
		st := p.forwarder.open(openHeader(t, p.bound))
		if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		close(cut)
		if rest, err := io.ReadAll(st); err == nil || len(rest) > 0 {
			t.Errorf("read %q and a clean end", rest)
		}
	})
	t.Run("of the client", func(t *testing.T) {
		t.Parallel()
		ended := make(chan error, 1)
		p := newTCPPath(t, serveTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "part")
			_, err := io.ReadAll(c)
			ended <- err
		}))
		st := p.forwarder.open(openHeader(t, p.bound))
		if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		_ = st.Reset(tunnel.Aborted)
		if err := receive(t, ended, "end"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the upstream's read ended with %v, want a reset", err)
		}
	})
}

func TestTCP_SendsBeforeAgentHasAccepted(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	p := newTCPPath(t, serveTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	st := p.forwarder.open(openHeader(t, p.bound))
	sent, got := sha256.New(), sha256.New()
	go func() {
		_, _ = io.Copy(st, noise(size, sent))
		_ = st.CloseWrite()
	}()
	n, err := io.Copy(got, st)
	if err != nil || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, %v", n, size, err)
	}
}

func TestTCP_RefusedWithReason(t *testing.T) {
	t.Parallel()
	p := newTCPPath(t, closedport.Reserve(t))
	if code := p.forwarder.openRefused(openHeader(t, p.bound)); code != tunnel.RefusedUpstream {
		t.Errorf("an upstream that refuses: %v", code)
	}
	p.agent.stop()
	if code := p.forwarder.openRefused(openHeader(t, p.bound)); code != tunnel.RefusedOffline {
		t.Errorf("an agent that is offline: %v", code)
	}
}

func TestTCP_GivesUpOnSilentAgent(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(o *Options) { o.agentOpenTimeout = 50 * time.Millisecond })
	a := r.startAgentWith(r.authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"},
		func(ctx context.Context, st *tunnel.Stream) {
			if d := st.Header().Deadline; d != 50*time.Millisecond {
				t.Errorf("the agent was told a deadline of %v", d)
			}
			_, _ = io.Copy(io.Discard, st)
		})
	b := receive(t, a.bound, "bind")
	f := r.startForwarder()
	if code := f.openRefused(openHeader(t, b)); code != tunnel.RefusedUpstream {
		t.Errorf("refused with %v", code)
	}
	st := f.open(openHeader(t, b))
	_ = st.SetReadDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(st, "client bytes come first")
	if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading gave %v", err)
	}
}

func TestTCP_TellsAgentTheClient(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	got := make(chan tunnel.OpenHeader, 1)
	a := r.startAgentWith(r.authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"}, func(_ context.Context, st *tunnel.Stream) {
		got <- st.Header()
		_ = st.Refuse(tunnel.RefusedUpstream)
	})
	h := openHeader(t, receive(t, a.bound, "bind"))
	h.TraceID, h.Pod = "trace-1", &tunnel.PodIdentity{Namespace: "demo", Name: "curl",
		Annotations: map[string]string{"team": "red"}}
	r.startForwarder().openRefused(h)
	if seen := receive(t, got, "stream"); seen.ClientAddr != podAddr || seen.TraceID != "trace-1" || seen.Pod == nil ||
		seen.Pod.Name != "curl" || seen.Pod.Annotations != nil ||
		seen.Host != "db.demo" || seen.Port != 5432 {
		t.Errorf("header %+v", seen)
	}
}

func TestTCP_RefusedConnectionsLeakNothing(t *testing.T) {
	t.Parallel()
	p := newTCPPath(t, closedport.Reserve(t))
	h := openHeader(t, p.bound)
	for range 1000 {
		if code := p.forwarder.openRefused(h); code != tunnel.RefusedUpstream {
			t.Fatal(code)
		}
	}
	want := []string{
		`fairlead_server_opens_total{hop="agent",outcome="the upstream is unreachable"} 1000`,
		"fairlead_server_connections 0", "fairlead_server_streams 0",
	}
	deadline := testContext(t) // the last one's ends may be on their way
	for metrics := p.scrapeMetrics(); slices.ContainsFunc(want, func(line string) bool {
		return !strings.Contains(metrics, line)
	}); metrics = p.scrapeMetrics() {
		if deadline.Err() != nil {
			t.Fatalf("metrics lack some of %q:\n%s", want, metrics)
		}
	}
}

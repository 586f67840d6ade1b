// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

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

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestTCP_HalfClosesBothWays(t *testing.T) {
	t.Parallel()
	t.Run("the client first", func(t *testing.T) {
		t.Parallel()
		p := servicetest.NewTCPPath(t, servicetest.ServeTCP(t, func(c *net.TCPConn) {
			asked, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(asked))
		}))
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = io.WriteString(st, "question")
		_ = st.CloseWrite()
		if got := servicetest.ReadAll(t, st); got != "QUESTION" {
			t.Errorf("answer %q", got)
		}
	})
	t.Run("the upstream first", func(t *testing.T) {
		t.Parallel()
		got := make(chan string, 1)
		p := servicetest.NewTCPPath(t, servicetest.ServeTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "all I have to say")
			_ = c.CloseWrite()
			rest, _ := io.ReadAll(c)
			got <- string(rest)
		}))
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		// it speaks first, and the client has sent nothing
		if said := servicetest.ReadAll(t, st); said != "all I have to say" {
			t.Errorf("greeting %q", said)
		}
		_, _ = io.WriteString(st, "still here")
		_ = st.CloseWrite()
		if rest := servicetest.Receive(t, got, "rest"); rest != "still here" {
			t.Errorf("after its end the upstream got %q", rest)
		}
	})
}

func TestTCP_PassesAborts(t *testing.T) {
	t.Parallel()
	t.Run("of the upstream", func(t *testing.T) {
		t.Parallel()
		cut := make(chan struct{})
		p := servicetest.NewTCPPath(t, servicetest.ServeTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "part")
			select {
			case <-cut:
			case <-t.Context().Done():
			}
			_ = c.SetLinger(0)
		}))
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
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
		p := servicetest.NewTCPPath(t, servicetest.ServeTCP(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "part")
			_, err := io.ReadAll(c)
			ended <- err
		}))
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		if _, err := io.ReadFull(st, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		_ = st.Reset(tunnel.Aborted)
		if err := servicetest.Receive(t, ended, "end"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the upstream's read ended with %v, want a reset", err)
		}
	})
}

func TestTCP_SendsBeforeAgentHasAccepted(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	p := servicetest.NewTCPPath(t, servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
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
	p := servicetest.NewTCPPath(t, closedport.Reserve(t))
	if code := p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound)); code != tunnel.RefusedUpstream {
		t.Errorf("an upstream that refuses: %v", code)
	}
	p.Agent.Stop()
	if code := p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound)); code != tunnel.RefusedOffline {
		t.Errorf("an agent that is offline: %v", code)
	}
}

func TestTCP_GivesUpOnSilentAgent(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, func(o *service.Options) { o.AgentOpenTimeout = 50 * time.Millisecond })
	a := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"},
		func(ctx context.Context, st *tunnel.Stream) {
			if d := st.Header().Deadline; d != 50*time.Millisecond {
				t.Errorf("the agent was told a deadline of %v", d)
			}
			_, _ = io.Copy(io.Discard, st)
		})
	b := servicetest.Receive(t, a.Bound, "bind")
	f := r.StartForwarder()
	if code := f.OpenRefused(servicetest.OpenHeader(t, b)); code != tunnel.RefusedUpstream {
		t.Errorf("refused with %v", code)
	}
	st := f.Open(servicetest.OpenHeader(t, b))
	_ = st.SetReadDeadline(time.Now().Add(servicetest.MaxWait))
	_, _ = io.WriteString(st, "client bytes come first")
	if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading gave %v", err)
	}
}

func TestTCP_TellsAgentTheClient(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	got := make(chan tunnel.OpenHeader, 1)
	a := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"},
		func(_ context.Context, st *tunnel.Stream) {
			got <- st.Header()
			_ = st.Refuse(tunnel.RefusedUpstream)
		})
	h := servicetest.OpenHeader(t, servicetest.Receive(t, a.Bound, "bind"))
	h.TraceID, h.Pod = "trace-1", &tunnel.PodIdentity{Namespace: "demo", Name: "curl",
		Annotations: map[string]string{"team": "red"}}
	r.StartForwarder().OpenRefused(h)
	if seen := servicetest.Receive(t, got, "stream"); seen.ClientAddr != servicetest.PodAddr ||
		seen.TraceID != "trace-1" || seen.Pod == nil ||
		seen.Pod.Name != "curl" || seen.Pod.Annotations != nil ||
		seen.Host != "db.demo" || seen.Port != 5432 {
		t.Errorf("header %+v", seen)
	}
}

func TestTCP_RefusedConnectionsLeakNothing(t *testing.T) {
	t.Parallel()
	p := servicetest.NewTCPPath(t, closedport.Reserve(t))
	h := servicetest.OpenHeader(t, p.Bound)
	for range 1000 {
		if code := p.Forwarder.OpenRefused(h); code != tunnel.RefusedUpstream {
			t.Fatal(code)
		}
	}
	want := []string{
		`fairlead_server_opens_total{hop="agent",outcome="the upstream is unreachable"} 1000`,
		"fairlead_server_connections 0", "fairlead_server_streams 0",
	}
	deadline := servicetest.Context(t) // the last one's ends may be on their way
	for metrics := p.ScrapeMetrics(); slices.ContainsFunc(want, func(line string) bool {
		return !strings.Contains(metrics, line)
	}); metrics = p.ScrapeMetrics() {
		if deadline.Err() != nil {
			t.Fatalf("metrics lack some of %q:\n%s", want, metrics)
		}
	}
}

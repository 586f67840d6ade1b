// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// watcher is a client of /status?watch=true inside a bubble, over the health listener's own server.
type watcher struct {
	t     *testing.T
	lines *json.Decoder
	close func()
}

// serveHealth serves the bubble's health listener and returns what dials it.
func (b *bubble) serveHealth(t *testing.T) (dial func() net.Conn, stop func()) {
	t.Helper()
	ln := pipelistener.New()
	health, done := &server{ln: ln, http: httpServer(b.healthHandler())}, make(chan error, 1)
	go func() { done <- health.run(t.Context()) }()
	dial = func() net.Conn {
		ours, theirs := net.Pipe()
		ln.Offer(theirs)
		return ours
	}
	return dial, func() {
		_ = health.http.Close()
		<-done
	}
}

func watch(t *testing.T, c net.Conn) *watcher {
	t.Helper()
	if _, err := io.WriteString(c, "GET /status"+statusQuery+"&watch=true HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("watch: %v, %v", res, err)
	}
	return &watcher{t: t, lines: json.NewDecoder(res.Body), close: func() { _ = c.Close() }}
}

// next returns the next line, and how long it took to come.
func (w *watcher) next() (Delta, time.Duration) {
	w.t.Helper()
	var d Delta
	begun := time.Now()
	if err := w.lines.Decode(&d); err != nil {
		w.t.Fatal(err)
	}
	return d, time.Since(begun)
}

func TestStatusWatch_SendsFullStatusThenDeltas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		dial, stop := b.serveHealth(t)
		b.source.update(tcpObjects())
		synctest.Wait() // the first attempt to reach the edge has failed: that is a change of the session
		w := watch(t, dial())
		var full Status
		if err := w.lines.Decode(&full); err != nil {
			t.Fatal(err)
		}
		want := ListenerStatus{Port: 15432, Hostname: "db.demo", ServicePort: 5432, Scheme: "tcp",
			URL:      "tcp://db.demo:5432",
			Endpoint: "ep-tcp", Listening: true}
		if full.Pod != "pod-1" || full.Session.Up || full.Session.Address != "edge.invalid:1" ||
			len(full.Listeners) != 1 ||
			full.Listeners[0] != want {
			t.Errorf("first line %+v", full)
		}
		time.Sleep(5 * time.Second)
		objects := tcpObjects()
		objects.BoundEndpoints = append(objects.BoundEndpoints, bep("more", "demo", "http", 80, 10081, "ep-more"))
		b.source.update(objects)
		if d, took := w.next(); took != 0 || len(d.Listeners) != 1 || d.Listeners[0].Hostname != "more.demo" ||
			d.Session != nil || d.Ready != nil {
			t.Errorf("a new listener after a quiet time: after %s %+v", took, d)
		}
		b.source.update(tcpObjects())
		objects.BoundEndpoints = append(objects.BoundEndpoints, bep("last", "demo", "http", 80, 10082, ""))
		b.source.update(Objects{BoundEndpoints: objects.BoundEndpoints[1:]})
		d, took := w.next()
		if took != statusInterval || len(d.Listeners) != 1 || d.Listeners[0].Hostname != "last.demo" ||
			!slices.Equal(d.Gone, []int{15432}) {
			t.Errorf("two changes in the same interval: after %s %+v", took, d)
		}
		for b.connect() && b.listeners.status()[0].Connections == 0 { // counters alone are no change
			synctest.Wait()
		}
		for range 6 { // longer than any of the server's own time-outs
			if d, took := w.next(); took > 10*time.Second || d.Listeners != nil || d.Gone != nil || d.Draining != nil {
				t.Errorf("heartbeat after %s: %+v", took, d)
			}
		}
		b.stop()
		for d, _ := w.next(); d.Draining == nil; d, _ = w.next() {
		}
		w.close()
		<-b.done
		stop()
	})
}

func TestStatusWatch_LimitAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		dial, stop := b.serveHealth(t)
		b.source.update(tcpObjects())
		watchers := make([]*watcher, maxStatusWatches)
		for i := range watchers {
			watchers[i] = watch(t, dial())
		}
		refused := dial()
		_, _ = io.WriteString(refused,
			"GET /status"+statusQuery+"&watch=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if res, err := http.ReadResponse(bufio.NewReader(refused), nil); err != nil ||
			res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one watch too many: %v, %v", res, err)
		}
		_ = refused.Close()
		for _, w := range watchers {
			w.close()
		}
		synctest.Wait()
		watch(t, dial()).close()
		b.stop()
		<-b.done
		stop()
	})
}

func TestStatusWatch_ReportsListenerError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		free := b.listeners.listen
		var taken atomic.Bool
		taken.Store(true)
		b.listeners.listen = func(ctx context.Context, port int) (net.Listener, error) {
			if taken.Load() {
				return nil, syscall.EADDRINUSE
			}
			return free(ctx, port)
		}
		dial, stop := b.serveHealth(t)
		b.source.update(tcpObjects())
		w := watch(t, dial())
		if d, _ := w.next(); len(d.Listeners) != 1 || d.Listeners[0].Listening ||
			d.Listeners[0].Error != "listening on port 15432: address already in use" {
			t.Errorf("a port that is taken: %+v", d)
		}
		taken.Store(false)
		d, _ := w.next()
		for d.Listeners == nil {
			d, _ = w.next()
		}
		if !d.Listeners[0].Listening || d.Listeners[0].Error != "" {
			t.Errorf("once it is free: %+v", d)
		}
		w.close()
		b.stop()
		<-b.done
		stop()
	})
}

func TestStatus_SessionAndConnections(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	wait.Receive(t, "the edge's session", e.up)
	wait.Until(t, "the session in the status", func() bool { return r.status().Session.Up })
	before := r.status()
	if before.Session.Address != e.addr || time.Since(before.Session.Since) > testTimeout ||
		before.Listeners[0].LastSuccess != nil {
		t.Errorf("before the first connection: %+v", before)
	}
	c := r.dial(10080)
	if res, _ := get(t, c, "/"); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	if l := r.status().Listeners[0]; l.Connections != 1 || l.Active != 1 || l.LastSuccess == nil ||
		l.LastFailure != nil {
		t.Errorf("with a connection: %+v", l)
	}
	_ = c.Close()
	wait.Until(t, "the connection's end", func() bool { return r.status().Listeners[0].Active == 0 })
	e.setHandle(refuseWith(tunnel.RefusedUpstream))
	_, _ = get(t, r.dial(10080), "/")
	l := r.status().Listeners[0]
	if l.LastFailure == nil || l.LastFailure.Reason != "upstream" ||
		l.LastFailure.Message != "The agent of http://api.demo cannot reach its upstream." {
		t.Errorf("after a failure: %+v", l.LastFailure)
	}
	if d, _ := r.status().delta(before); len(d.Listeners)+len(d.Gone) > 0 { // it may have become ready meanwhile
		t.Errorf("counters alone are a change: %+v", d)
	}
}

// TestStatus_RequestResultsOfEdge checks that the results of http requests are those that the edge
// reports: an opened connection does not reveal them.
func TestStatus_RequestResultsOfEdge(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	r := connected(t, e, shortTiming())
	session := wait.Receive(t, "the edge's session", e.up)
	c := r.dial(10080)
	if res, _ := get(t, c, "/"); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	for code, reason := range map[account.Code]string{
		account.CodeEndpointOffline: "offline", account.CodeUpstreamUnreachable: "upstream",
		account.CodeUpstreamBroken: "upstream_broken",
		account.CodeAgentSilent:    "agent_silent",
	} {
		session.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-http", Code: string(code), Status: code.Status()})
		wait.Until(t, "what the edge tells", func() bool {
			l := r.status().Listeners[0]
			return l.LastFailure != nil && l.LastFailure.Reason == reason && strings.Contains(l.LastFailure.Message,
				"http://api.demo") && l.LastFailure.At.After(*l.LastSuccess)
		})
	}
	failed := r.status().Listeners[0].LastFailure.At
	// of another forwarder's endpoint
	session.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-other", Code: string(account.CodeAgentSilent)})
	// of a later version
	session.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-http", Code: "ERR_FL_9999"})
	session.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-http", Status: http.StatusOK})
	wait.Until(t, "that the upstream answers again", func() bool {
		return r.status().Listeners[0].LastSuccess.After(failed)
	})
	if l := r.status().Listeners[0]; !l.LastFailure.At.Equal(failed) {
		t.Errorf("failure %+v", l.LastFailure)
	}
}

// Account, operator and hostnames are for those who may read the KubernetesOperator; probes need no
// token.
func TestStatus_NeedsTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		dial, stop := b.serveHealth(t)
		ask := func(path string) (int, string) {
			t.Helper()
			c := dial()
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			return res.StatusCode, string(body)
		}
		unknown := tcpObjects()
		unknown.OperatorUID = ""
		b.source.update(unknown)
		if status, body := ask("/status" + statusQuery); status != http.StatusServiceUnavailable {
			t.Errorf("without a KubernetesOperator: %d %s", status, body)
		}
		b.source.update(tcpObjects())
		b.source.update(unknown) // it was deleted: it stays the one that is known
		for path, want := range map[string]int{
			"/status": http.StatusForbidden, "/status?watch=true": http.StatusForbidden,
			"/status?token=":               http.StatusForbidden,
			"/status?token=" + operatorUID: http.StatusForbidden, "/status" + statusQuery + "0": http.StatusForbidden,
			"/status" + statusQuery: http.StatusOK, "/healthz": http.StatusOK,
		} {
			if status, body := ask(path); status != want || strings.Contains(body, "db.demo") != strings.HasSuffix(path,
				statusQuery) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		b.stop()
		<-b.done
		stop()
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// startTCPMember joins the pool of tcp://db.demo:5432. Its upstream sends the member's name, and
// then repeats what it gets. It serves its own endpoint only, as an agent does.
func startTCPMember(r *servicetest.Server, token, name string) (*servicetest.Agent, tunnel.Bound) {
	r.T.Helper()
	upstream := servicetest.ServeTCP(r.T, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, name)
		_, _ = io.Copy(c, c)
	})
	relayed := servicetest.RelayTo(upstream)
	own := make(chan string, 1)
	a := r.StartAgentWith(token, tunnel.Bind{URL: "tcp://db.demo:5432", Name: name, PoolingEnabled: true},
		func(ctx context.Context, st *tunnel.Stream) {
			id := <-own
			own <- id
			if st.Header().EndpointID != id {
				_ = st.Refuse(tunnel.RefusedUnknownEndpoint)
				return
			}
			relayed(ctx, st)
		})
	bound := servicetest.Receive(r.T, a.Bound, "bind of "+name)
	own <- bound.EndpointID
	return a, bound
}

// openNamed opens a connection and returns the name of the member that serves it, of so many bytes.
func openNamed(f *servicetest.Forwarder, h tunnel.OpenHeader, size int) (*tunnel.Stream, string) {
	f.T.Helper()
	st := f.Open(h)
	name := make([]byte, size)
	if _, err := io.ReadFull(st, name); err != nil {
		f.T.Fatalf("a connection to %s:%d got nothing: %v", h.Host, h.Port, err)
	}
	return st, string(name)
}

func spreadStreams(
	f *servicetest.Forwarder, n int, h func(int) tunnel.OpenHeader,
) (map[string]int, map[string][]*tunnel.Stream) {
	f.T.Helper()
	count, streams := map[string]int{}, map[string][]*tunnel.Stream{}
	for i := range n {
		st, name := openNamed(f, h(i), 1)
		count[name]++
		streams[name] = append(streams[name], st)
	}
	return count, streams
}

func sameHeader(h tunnel.OpenHeader) func(int) tunnel.OpenHeader {
	return func(int) tunnel.OpenHeader { return h }
}

// echoes reports whether a connection still works.
func echoes(st *tunnel.Stream) bool {
	b := make([]byte, 1)
	if _, err := st.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(st, b)
	return err == nil
}

func TestPool_SpreadsLongConnectionsEvenly(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	var headers []tunnel.OpenHeader
	for _, name := range []string{"a", "b", "c"} {
		_, b := startTCPMember(r, r.Authtoken, name)
		headers = append(headers, servicetest.OpenHeader(t, b))
	}
	// Whichever member the forwarder names, and when they come at once.
	got, streams := spreadStreams(f, 18, func(i int) tunnel.OpenHeader { return headers[i/6] })
	if want := map[string]int{"a": 6, "b": 6, "c": 6}; !maps.Equal(got, want) {
		t.Fatalf("spread %v, want %v", got, want)
	}
	// What ends makes room: four connections of one member end, and the next four are its.
	for _, st := range streams["b"][:4] {
		_ = st.CloseWrite()
		if rest, err := io.ReadAll(st); err != nil || len(rest) > 0 {
			t.Fatalf("the end of a connection: %q %v", rest, err)
		}
	}
	servicetest.Eventually(t, "the ended connections are not counted any more", func() bool {
		return strings.Contains(r.ScrapeMetrics(), "\nfairlead_server_connections 14\n")
	})
	if got, _ := spreadStreams(f, 4, sameHeader(headers[0])); !maps.Equal(got, map[string]int{"b": 4}) {
		t.Errorf("after four of b have ended, the next went to %v", got)
	}
	// A new member gets what comes until it has as many.
	startTCPMember(r, r.Authtoken, "d")
	if got, _ := spreadStreams(f, 6, sameHeader(headers[0])); !maps.Equal(got, map[string]int{"d": 6}) {
		t.Errorf("after d has come, the next went to %v", got)
	}
	var listed struct {
		Endpoints []struct {
			PoolingEnabled bool   `json:"pooling_enabled"`
			ProjectionID   string `json:"projection_id"`
			URL            string
		}
	}
	r.CallAPI("GET", "/endpoints?url=tcp://db.demo:5432", nil, &listed)
	if len(listed.Endpoints) != 4 {
		t.Errorf("the API lists %d members", len(listed.Endpoints))
	}
	for _, e := range listed.Endpoints {
		if !e.PoolingEnabled || e.ProjectionID != headers[0].EndpointID {
			t.Errorf("the API shows %+v, want pooling and the first one's id", e)
		}
	}
}

func TestPool_DeadMemberEndsOwnConnectionsOnly(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	a, bound := startTCPMember(r, r.Authtoken, "a")
	startTCPMember(r, r.Authtoken, "b")
	_, streams := spreadStreams(f, 6, sameHeader(servicetest.OpenHeader(t, bound)))
	a.Stop()
	for _, st := range streams["a"] {
		if rest, err := io.ReadAll(st); err == nil {
			t.Errorf("a connection of the dead member ended cleanly after %q", rest)
		}
	}
	servicetest.Eventually(t, "the dead member is offline", func() bool {
		return storedEndpoint(r, bound.EndpointID).Status == account.StatusOffline
	})
	// named by the one that is gone
	if got, _ := spreadStreams(f, 5, sameHeader(servicetest.OpenHeader(t, bound))); !maps.Equal(got,
		map[string]int{"b": 5}) {
		t.Errorf("new connections went to %v", got)
	}
	for _, st := range streams["b"] {
		if !echoes(st) {
			t.Error("a connection of the other member broke")
		}
	}
	startTCPMember(r, r.Authtoken, "a") // restarted: it succeeds only its own earlier session
	if again := storedEndpoint(r, bound.EndpointID); again.Status != account.StatusOnline {
		t.Errorf("the restarted member did not find its row: %+v", again)
	}
}

func TestPool_StoppingMemberGetsNoNewConnections(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	a, first := startTCPMember(r, r.Authtoken, "a")
	_, second := startTCPMember(r, r.Authtoken, "b")
	s, err := a.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	held, name := openNamed(f, servicetest.OpenHeader(t, first), 1)
	if name != "a" {
		t.Fatalf("the first connection went to %s", name)
	}
	if err := s.Unbind(servicetest.Context(t), first.EndpointID); err != nil { // its goodbye
		t.Fatal(err)
	}
	whole := servicetest.OpenHeader(t, first)
	whole.Scheme = "tcp"
	// forwarders name the first until they hear of its end
	if got, _ := spreadStreams(f, 3, sameHeader(whole)); !maps.Equal(got, map[string]int{"b": 3}) {
		t.Errorf("by the id of the one that is gone, connections went to %v", got)
	}
	if !echoes(held) {
		t.Error("the goodbye broke an open connection")
	}
	other, wrong := whole, whole
	other.Host, wrong.Scheme = "other.demo", "http"
	for what, h := range map[string]tunnel.OpenHeader{"without a scheme": servicetest.OpenHeader(t, first),
		"with another host":   other,
		"with another scheme": wrong} {
		if got := f.OpenRefused(h); got != tunnel.RefusedOffline {
			t.Errorf("an id that is gone, %s: %v", what, got)
		}
	}
	known := servicetest.OpenHeader(t, second)
	known.Scheme = "http"
	if got := f.OpenRefused(known); got != tunnel.RefusedMismatch {
		t.Errorf("a live id with another scheme: %v", got)
	}
}

func TestPool_KeepsAccountsApart(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	st := r.OpenStore()
	other, err := st.CreateAccount(servicetest.Context(t), "other")
	must.Succeed(t, err)
	_, otherToken, err := st.IssueAuthtoken(servicetest.Context(t), other.ID, "", []string{"bind:*", "connect:*"})
	must.Succeed(t, err)
	op, _, err := st.UpsertOperator(servicetest.Context(t), account.Operator{AccountID: other.ID, Description: "other"})
	must.Succeed(t, err)
	startTCPMember(r, r.Authtoken, "a")
	_, ours := startTCPMember(r, r.Authtoken, "b")
	_, theirs := startTCPMember(r, otherToken, "x")
	ourForwarder, theirForwarder := r.StartForwarder(), r.StartForwarderAs(otherToken, op.ID)
	if got, _ := spreadStreams(ourForwarder, 8, sameHeader(servicetest.OpenHeader(t, ours))); !maps.Equal(got,
		map[string]int{"a": 4, "b": 4}) {
		t.Errorf("our connections went to %v", got)
	}
	if got, _ := spreadStreams(theirForwarder, 4, sameHeader(servicetest.OpenHeader(t, theirs))); !maps.Equal(got,
		map[string]int{"x": 4}) {
		t.Errorf("their connections went to %v", got)
	}
	if got := theirForwarder.OpenRefused(servicetest.OpenHeader(t, ours)); got != tunnel.RefusedUnknownEndpoint {
		t.Errorf("our id in their hands: %v", got)
	}
	foreign := servicetest.OpenHeader(t, ours)
	foreign.Scheme = "tcp"
	// their URL, whatever the id
	if got, _ := spreadStreams(theirForwarder, 2, sameHeader(foreign)); !maps.Equal(got, map[string]int{"x": 2}) {
		t.Errorf("our id and their URL led to %v", got)
	}
}

func TestPool_ChoosesLeastLoadedMember(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f := r.StartForwarder()
	held, release := make(chan string, 1), make(chan struct{})
	member := func(name, hostMode string) (*servicetest.Agent, tunnel.Bound) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/hold" {
				held <- name
				<-release
			}
			_, _ = fmt.Fprintf(w, "%s %s", name, q.Host)
		}))
		t.Cleanup(srv.Close)
		a := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "http://hello.demo", Name: name, PoolingEnabled: true,
			UpstreamProtocol: "http1", HostMode: hostMode},
			servicetest.RelayTo(srv.Listener.Addr().String()))
		return a, servicetest.Receive(t, a.Bound, "bind of "+name)
	}
	a, first := member("a", "")
	b, second := member("b", "b.example")
	tr, trHeld := f.Transport(first), f.Transport(first)
	tr.MaxConnsPerHost = 1 // so that a request has ended on its member, too, before the next one begins
	ask := func(n int) map[string]int {
		got := map[string]int{}
		for range n {
			got[servicetest.ReadAll(t, f.Do(tr, "GET", "http://hello.demo/", nil, nil).Body)]++
		}
		return got
	}
	// One connection of the pod's; its requests take turns, each with the attributes of the member
	// that serves it.
	if got := ask(6); !maps.Equal(got, map[string]int{"a hello.demo": 3, "b b.example": 3}) {
		t.Errorf("six requests in turn: %v", got)
	}
	for _, m := range []struct {
		*servicetest.Agent
		id string
	}{{a, first.EndpointID}, {b, second.EndpointID}} {
		for range 3 {
			if line := servicetest.Receive(t, m.Lines, "request line"); line.EndpointID != m.id {
				t.Errorf("the agent of %s was shown a request of %s", m.id, line.EndpointID)
			}
		}
	}
	done := make(chan string, 1)
	go func() { done <- servicetest.ReadAll(t, f.Do(trHeld, "GET", "http://hello.demo/hold", nil, nil).Body) }()
	busy := servicetest.Receive(t, held, "request that takes long")
	want := map[string]string{"a": "b b.example", "b": "a hello.demo"}[busy]
	if got := ask(4); !maps.Equal(got, map[string]int{want: 4}) {
		t.Errorf("while %s is busy: %v", busy, got)
	}
	close(release)
	servicetest.Receive(t, done, "the long answer")
}

// storedEndpoint reads an endpoint from the API.
func storedEndpoint(r *servicetest.Server, id string) *account.Endpoint {
	r.T.Helper()
	e := &account.Endpoint{}
	if status := r.CallAPI("GET", "/endpoints/"+id, nil, e); status != http.StatusOK {
		r.T.Fatalf("asking for endpoint %s: status %d", id, status)
	}
	return e
}

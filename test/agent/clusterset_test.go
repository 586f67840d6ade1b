// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// exportKey creates an API key of a cluster's exporter that may export the namespace demo, and has
// no rule for URLs.
func exportKey(s *servicetest.Server, cluster string) string {
	var key account.APIKey
	s.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}, "cluster_uid": cluster,
		"acl": []string{"export:demo/*"}}, &key)
	return *key.Token
}

// exported returns the endpoint of a port of the Service hello that the cluster with this id
// exports.
func exported(t *testing.T, clusterID string, port int, upstream string) agent.Endpoint {
	t.Helper()
	to, err := agent.ParseUpstream("tcp", upstream)
	must.Succeed(t, err)
	return agent.Endpoint{Key: fmt.Sprint(port), URL: account.ExportedPortURL("hello", "demo", clusterID, port),
		Binding: account.BindingClusterset, Upstream: to, Dial: new(net.Dialer).DialContext,
		Owner: &tunnel.Owner{Kind: account.KindServiceExport, Namespace: "demo", Name: "hello", UID: "1"}}
}

// startExporter runs an exporter's replica that serves these endpoints.
func startExporter(
	t *testing.T, s *servicetest.Server, token, instance string, all ...agent.Endpoint,
) (*running, *cutConns) {
	t.Helper()
	conns := &cutConns{}
	return start(t, s, func(o *agent.Options) {
		o.Endpoints, o.InstanceID, o.ClusterUID, o.DialServer = all, instance, clusterUID, conns.dial
		o.Token = func() string { return token }
	}), conns
}

// greeter is an upstream that answers one line with its name, and closes.
func greeter(t *testing.T, name string) string {
	return servicetest.ServeTCP(t, func(c *net.TCPConn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			_, _ = io.WriteString(c, name)
		}
	})
}

// callLine sends a line over a connection of its own and returns what is answered until the end. It
// ends its own direction only after that.
func callLine(f *servicetest.Forwarder, h tunnel.OpenHeader) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), servicetest.MaxWait)
	defer cancel()
	s, err := f.Wait(ctx)
	if err != nil {
		return "", err
	}
	st, err := s.Open(ctx, h)
	if err != nil {
		return "", err
	}
	defer func() { _ = st.Close() }()
	_ = st.SetReadDeadline(time.Now().Add(servicetest.MaxWait))
	_, _ = io.WriteString(st, "hi\n")
	answer, err := io.ReadAll(st)
	_ = st.CloseWrite()
	return string(answer), err
}

// portHeader is what a forwarder sends for a port of the Service that cluster a exports.
func portHeader(id string, port int) tunnel.OpenHeader {
	return tunnel.OpenHeader{EndpointID: id, Scheme: "tcp", Host: "hello.demo.a", Port: port,
		ClientAddr: servicetest.PodAddr}
}

// TestClusterset_ReplicasShareTheirPorts holds that the replicas of an exporter serve each port of
// an exported Service together, and that one which is killed costs the calls under way at most.
func TestClusterset_ReplicasShareTheirPorts(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	key := exportKey(s, clusterUID)
	a, conns := startExporter(t, s, key, "in-a", exported(t, "a", 42, greeter(t, "a42")),
		exported(t, "a", 43, greeter(t, "a43")))
	bound := a.online("42", "43")
	b, _ := startExporter(t, s, key, "in-b", exported(t, "a", 42, greeter(t, "b42")),
		exported(t, "a", 43, greeter(t, "b43")))
	again := b.online("42", "43")
	f := s.StartForwarder()
	for port, key := range map[int]string{42: "42", 43: "43"} {
		if again[key].EndpointID == bound[key].EndpointID || again[key].OwnerEndpointID != bound[key].EndpointID {
			t.Errorf("port %d: the second replica has %+v, beside %+v", port, again[key], bound[key])
		}
		answers := map[string]int{}
		for range 20 {
			answer, err := callLine(f, portHeader(bound[key].EndpointID, port))
			must.Succeed(t, err)
			answers[answer]++
		}
		if answers["a"+key] < 5 || answers["b"+key] < 5 || len(answers) != 2 {
			t.Errorf("port %d was answered %v", port, answers)
		}
	}
	l := startCalls(t, f, portHeader(bound["42"].EndpointID, 42))
	l.progress(50)
	conns.kill()
	killed := time.Now()
	l.progress(200)
	if n := l.end(killed); n > callers {
		t.Errorf("%d calls failed, of %d that were under way", n, callers)
	}
}

// callers is how many calls are under way at a time.
const callers = 8

// calls are calls of callers at a time until they are ended.
type calls struct {
	t    *testing.T
	stop context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	answered int
	failed   map[time.Time]error // by the start of the call
}

func startCalls(t *testing.T, f *servicetest.Forwarder, h tunnel.OpenHeader) *calls {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &calls{t: t, stop: cancel, failed: map[time.Time]error{}}
	for range callers {
		l.all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				answer, err := callLine(f, h)
				if err == nil && answer == "" {
					err = errors.New("no answer, and a clean end")
				}
				l.mu.Lock()
				if l.answered++; err != nil {
					l.failed[began] = err
				}
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { cancel(); l.all.Wait() })
	return l
}

// progress waits until n more calls have ended.
func (l *calls) progress(n int) {
	l.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.answered
	}
	until := count() + n
	servicetest.Eventually(l.t, "answers to calls", func() bool { return count() >= until })
}

// end stops the calls and returns how many failed. Those that began after the time must not have.
func (l *calls) end(after time.Time) int {
	l.t.Helper()
	l.stop()
	l.all.Wait()
	for began, err := range l.failed {
		if began.After(after) {
			l.t.Errorf("a call that began %v after the kill failed: %v", began.Sub(after), err)
		}
	}
	return len(l.failed)
}

// TestClusterset_FoundByURL holds that a forwarder which still names the row of a replica that is
// gone reaches the others by the URL, and that one of another account reaches nothing.
func TestClusterset_FoundByURL(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	key := exportKey(s, clusterUID)
	a, _ := startExporter(t, s, key, "in-a", exported(t, "a", 42, greeter(t, "a")))
	gone := a.online("42")["42"].EndpointID
	b, _ := startExporter(t, s, key, "in-b", exported(t, "a", 42, greeter(t, "b")))
	left := b.online("42")["42"].EndpointID
	a.Set(nil)
	next(a, func(e agent.Removed) bool { return e.Unbound })
	f := s.StartForwarder()
	for _, id := range []string{gone, left} {
		if answer, err := callLine(f, portHeader(id, 42)); err != nil || answer != "b" {
			t.Errorf("by %s: %q, %v", id, answer, err)
		}
	}
	h := portHeader(left, 42)
	h.Port = 43
	if code := f.OpenRefused(h); code != tunnel.RefusedMismatch {
		t.Errorf("another port by the id: %s", code)
	}
	if h.EndpointID = gone; f.OpenRefused(h) == tunnel.RefusedMismatch {
		t.Error("an id that is gone still has a port")
	}
	other := s.CreateAccount()
	var op account.Operator
	mine := s.APIKey
	s.APIKey = other.APIKey
	s.CreateObject("/kubernetes_operators", map[string]any{"description": "test",
		"enabled_features": []string{"bindings"}}, &op)
	s.APIKey = mine
	stranger := s.StartForwarderAs(other.Authtoken, op.ID)
	for _, id := range []string{gone, left} {
		if code := stranger.OpenRefused(portHeader(id, 42)); code != tunnel.RefusedUnknownEndpoint {
			t.Errorf("from another account by %s: %s", id, code)
		}
	}
}

// TestClusterset_RefusesOthers holds who may not bind a port of an exported Service, and what not.
func TestClusterset_RefusesOthers(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	holder, _ := startExporter(t, s, exportKey(s, clusterUID), "in-a", exported(t, "a", 42, greeter(t, "a")))
	holder.online("42")
	policy := exported(t, "a", 43, "42")
	policy.TrafficPolicy = "on_tcp_connect:\n- actions: [{type: deny}]\n"
	otherNamespace := exported(t, "a", 44, "42")
	otherNamespace.URL = account.ExportedPortURL("hello", "shop", "a", 44)
	owner := *otherNamespace.Owner
	owner.Namespace, otherNamespace.Owner = "shop", &owner
	for name, c := range map[string]struct {
		token, cluster string
		endpoint       agent.Endpoint
		code           tunnel.Code
	}{
		"an authtoken": {s.Authtoken, "", exported(t, "a", 43, "42"), tunnel.CodeForbidden},
		"another cluster's key": {exportKey(s, "cluster-b"), "cluster-b", exported(t, "a", 42, "42"),
			tunnel.CodeURLTaken},
		"a traffic policy":  {exportKey(s, clusterUID), clusterUID, policy, tunnel.CodeInvalid},
		"another namespace": {exportKey(s, clusterUID), clusterUID, otherNamespace, tunnel.CodeForbidden},
	} {
		r := start(t, s, func(o *agent.Options) {
			o.Endpoints, o.Token, o.ClusterUID = []agent.Endpoint{c.endpoint}, func() string {
				return c.token
			}, c.cluster
		})
		refused := next(r, func(agent.BindRefused) bool { return true })
		if refused.Code != c.code {
			t.Errorf("%s: refused with %s: %s", name, refused.Code, refused.Cause)
		}
	}
}

// TestClusterset_DeliversEnd holds that the whole answer and the end of an upstream arrive although
// the caller's direction stays open, and also where the upstream resets its connection because it
// has not read what the caller sent.
func TestClusterset_DeliversEnd(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	answer := "pod ip 10.244.0.5\n"
	for name, end := range map[string]func(*net.TCPConn){
		"half-closes and reads on": func(c *net.TCPConn) {
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		},
		"closes without reading": func(*net.TCPConn) {},
	} {
		t.Run(name, func(t *testing.T) {
			e := exported(t, "a", 42, servicetest.ServeTCP(t, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, answer)
				end(c)
			}))
			r, _ := startExporter(t, s, exportKey(s, clusterUID), "in-a", e)
			h, f := portHeader(r.online("42")["42"].EndpointID, 42), s.StartForwarder()
			lost, unclean := 0, 0
			for range 200 {
				got, err := callLine(f, h)
				if got != answer {
					lost++
				}
				if err != nil {
					unclean++
				}
			}
			if lost > 0 || unclean > 0 && name != "closes without reading" {
				t.Errorf("%d answers were lost, %d ended with an error", lost, unclean)
			}
			r.stop()
		})
	}
}

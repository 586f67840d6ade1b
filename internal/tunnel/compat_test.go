// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestServer_RefusesUnknownProtocolVersion(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overPipe, newHandler())
	_, st := rawControlStream(t, h.rawTLSConn(t))
	_, _ = io.WriteString(st, encodeFrame(`{"type":"hello","protocol":7,"hello":{"role":"agent"}}`))
	b, err := readFrame(st, nil, messageLimit, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	m, err := parseMessage(b)
	if err != nil || m.Type != typeError || m.Error.Code != CodeVersion ||
		!strings.Contains(m.Error.Msg, "update the older one") {
		t.Fatalf("answer %s, %v", b, err)
	}
	if len(h.handler.tokens()) != 0 {
		t.Error("the handler saw the hello")
	}
}

// TestClient_RetriesServerOfAnotherProtocol: the peer is not authenticated and may be a captive
// portal.
func TestClient_RetriesServerOfAnotherProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		protocols []string
		says      string
	}{
		"newer":   {[]string{"fairlead/9"}, "too far apart in version"},
		"no ALPN": {nil, "is it the address of a Fairlead server?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, overTCP, newHandler())
			h.tls.NextProtos = c.protocols
			r := h.startClient(ClientConfig{})
			for range 2 {
				if err := wait.Receive(t, "OnDown", r.downs); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

func TestSession_SkipsUnknownMessages(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Hello: agentHello, Connections: 1})
	s := r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	for _, side := range []*Session{s, far} {
		side.mu.Lock()
		l := side.links.active[0]
		side.mu.Unlock()
		if err := l.send(&message{Type: "of a later version"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil {
		t.Errorf("the session did not survive an unknown message: %v", err)
	}
}

// TestBind_RefusesServerWithoutFeature checks a server of the first release, which skips unknown
// fields: it would bind the endpoint without its policy.
func TestBind_RefusesServerWithoutFeature(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Hello: agentHello, Connections: 1})
	s := r.awaitSession(t)
	policy, labels := Bind{URL: "http://a.b", TrafficPolicy: "{}"}, Bind{Labels: map[string]string{"app": "api"}}
	owned := Bind{URL: "http://a.b", Owner: &Owner{Kind: "AgentEndpoint", Namespace: "a", Name: "b", UID: "c"}}
	exported := Bind{URL: "tcp://b.a.c:1", Binding: BindingClusterset, Owner: owned.Owner}
	for _, b := range []Bind{policy, labels, owned, exported} {
		if _, err := s.Bind(t.Context(), b); err != nil {
			t.Errorf("a server of today refuses %+v: %v", b, err)
		}
	}
	s.setServer("0.1.0")
	for name, b := range map[string]Bind{"traffic policies": policy, "labelled tunnels": labels,
		"endpoints of Kubernetes objects": owned, "exports of Services": exported} {
		var refused *Error
		_, err := s.Bind(t.Context(), b)
		if want := "the server (version 0.1.0) does not know " + name + ": update it"; !errors.As(err, &refused) ||
			refused.Code != CodeInvalid || refused.Msg != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil {
		t.Errorf("what the old server knows: %v", err)
	}
	s.setServer("1.4.0", FeatureOwner)
	var refused *Error
	if _, err := s.Bind(t.Context(), exported); !errors.As(err, &refused) ||
		refused.Msg != "the server (version 1.4.0) does not know exports of Services: update it" {
		t.Errorf("a server that knows owners: %v", err)
	}
}

// setServer makes the server behind all connections of a client's session look like one with the
// version and the features.
func (s *Session) setServer(version string, features ...Feature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links.active {
		l.server = serverSupport{version, features}
	}
}

// TestBind_SentToReplicaWithFeature checks that a session which began on a replica of an older
// version binds what only a newer replica knows.
func TestBind_SentToReplicaWithFeature(t *testing.T) {
	withReplicas(t, 2, ClientConfig{Hello: agentHello}, func(t *testing.T, r *fakeReplicas, c *testClient) {
		s, older := c.Session(), r.live[0].id
		s.welcome.Features = []Feature{FeatureOwner}
		s.mu.Lock()
		for _, l := range s.links.active {
			if l.replicaID == older {
				l.server.features = s.welcome.Features
			}
		}
		s.mu.Unlock()
		binds := make(chan string, 8)
		for _, p := range r.live {
			p.handler.bind = func(_ context.Context, _ *Session, b Bind) (Bound, error) {
				binds <- p.id
				return Bound{EndpointID: "ep_1", URL: b.URL}, nil
			}
		}
		for range 3 {
			if _, err := s.Bind(t.Context(), Bind{URL: "tcp://b.a.c:1", Binding: BindingClusterset}); err != nil {
				t.Fatal(err)
			}
			if by := <-binds; by == older {
				t.Errorf("bound over %s, which does not know it", by)
			}
		}
		if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil || <-binds != older {
			t.Errorf("what every replica knows is not bound over the first: %v", err)
		}
	})
}

// TestBind_FitsLargestPolicy checks that a policy of the maximum size fits, whatever JSON has to
// escape in it.
func TestBind_FitsLargestPolicy(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	arrived := make(chan string, 2)
	handler.bind = func(_ context.Context, _ *Session, b Bind) (Bound, error) {
		arrived <- b.TrafficPolicy
		return Bound{EndpointID: "ep_1"}, nil
	}
	h := newTestServer(t, overTCP, handler)
	s := h.startClient(ClientConfig{Hello: agentHello, Connections: 1}).awaitSession(t)
	for _, policy := range []string{strings.Repeat("<", 64<<10), strings.Repeat("\x01", 64<<10)} {
		if _, err := s.Bind(t.Context(),
			Bind{URL: "http://a.b", TrafficPolicy: policy, Metadata: strings.Repeat("&", 4096)}); err != nil {
			t.Fatal(err)
		}
		if got := wait.Receive(t, "the policy", arrived); got != policy {
			t.Errorf("%d bytes arrived, not as they were sent", len(got))
		}
	}
	if _, err := s.Bind(t.Context(),
		Bind{URL: "http://a.b", TrafficPolicy: strings.Repeat("x", 600<<10)}); err == nil ||
		!strings.Contains(err.Error(), "at most 524288 are allowed") {
		t.Errorf("error %v", err)
	}
	if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
}

func TestError_WireFormat(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(&Error{Code: CodeURLTaken, Msg: "m", Detail: "ERR_FL_1060"})
	if err != nil || string(b) != `{"code":"URL_TAKEN","msg":"m","detail":"ERR_FL_1060"}` {
		t.Errorf("%s, %v", b, err)
	}
	if s := (&Error{Code: CodeLimit}).Error(); s != "LIMIT" {
		t.Error(s)
	}
	if s := (&Error{Code: CodeURLTaken, Msg: "m", Detail: "ERR_FL_1060"}).Error(); s != "m (ERR_FL_1060)" {
		t.Error(s)
	}
	if s := fmt.Sprint(RefuseCode(77)); s != "code 77" {
		t.Error(s)
	}
	for code, final := range map[Code]bool{CodeBadToken: true, CodeTokenRevoked: true, CodeVersion: true,
		CodeStop:      true,
		CodeForbidden: true,
		CodeURLTaken:  false, CodeDraining: false, CodeUnavailable: false, CodeInternal: false,
		"OF_A_LATER_VERSION": false} {
		if code.Final() != final {
			t.Errorf("%s is final: %v", code, code.Final())
		}
	}
}

// TestServer_TellsOlderClientsNoAddresses checks clients that know replicas, and not their
// addresses: their welcome is as before, and they hear only of another number.
func TestServer_TellsOlderClientsNoAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		one, two := ReplicaAddress{"rp_1", "192.0.2.1:443"}, ReplicaAddress{"rp_2", "192.0.2.2:443"}
		h.server.SetReplicas(3, one)
		for role, features := range map[Role][]Feature{RoleAgent: {FeatureReplicas}, RoleForwarder: nil} {
			older, welcome, err := h.dialRaw(t, Hello{Role: role, Features: features})
			if err != nil || welcome.Replicas != 3 || len(welcome.ReplicaAddresses) != 0 {
				t.Fatalf("welcome %+v, %v", welcome, err)
			}
			h.server.SetReplicas(3, one, two)
			synctest.Wait()
			if got := drainControl(older); len(got) != 0 {
				t.Errorf("a client with the features %q was told %q", features, got)
			}
			h.server.SetReplicas(3, one)
		}
	})
}

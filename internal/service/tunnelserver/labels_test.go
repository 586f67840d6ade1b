// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestChooseLabels_MatchesLabels(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	one, two := l.agent(), l.agent()
	a := l.tunnel(one, map[string]string{"app": "api", "site": "a"}, "")
	b := l.tunnel(two, map[string]string{"app": "api", "site": "b"}, "")
	choose := func(labels map[string]string) *Member {
		t.Helper()
		if !l.IsOnline(TunnelGroup(l.accountID, labels)) {
			t.Fatalf("nothing is online for %v", labels)
		}
		h, err := l.Choose(t.Context(), TunnelGroup(l.accountID, labels))
		must.Succeed(t, err)
		return h
	}
	first := choose(map[string]string{"app": "api"})
	second := choose(map[string]string{"app": "api"})
	if ids := []string{first.Endpoint().ID, second.Endpoint().ID}; ids[0] == ids[1] ||
		!slices.Contains(ids, a.EndpointID) || !slices.Contains(ids, b.EndpointID) {
		t.Errorf("two connections went to %v, want one each to %s and %s", ids, a.EndpointID, b.EndpointID)
	}
	first.Release()
	if third := choose(map[string]string{"app": "api"}); third != first {
		t.Error("the connection did not go to the tunnel with the fewest")
	}
	if h := choose(map[string]string{"site": "b", "app": "api"}); h.Endpoint().ID != b.EndpointID ||
		h.Endpoint().UpstreamURL != "tcp://localhost:1" {
		t.Errorf("got %+v", h.Endpoint())
	}
	for _, c := range []struct {
		accountID string
		labels    map[string]string
	}{{l.accountID, map[string]string{"app": "api", "site": "c"}}, {"ac-other", map[string]string{"app": "api"}}} {
		if l.IsOnline(TunnelGroup(c.accountID, c.labels)) {
			t.Errorf("online: %+v", c)
		}
	}
	opened, err := second.Open(t.Context(), tunnel.OpenHeader{EndpointID: second.Endpoint().ID})
	must.Succeed(t, err)
	defer opened.Reset(0)
	wait, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := opened.WaitOpened(wait); err != nil {
		t.Error(err)
	}
	if st := l.Stats(); st.Tunnels != 2 || st.Endpoints != 0 {
		t.Errorf("counted %+v", st)
	}
}

func TestTunnel_EndsWithSessionOrUnbind(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	labels := map[string]string{"app": "api"}
	a := l.agent()
	bound := l.tunnel(a, labels, "")
	h, err := l.Choose(t.Context(), TunnelGroup(l.accountID, labels))
	if err != nil || len(l.listed()) != 1 || l.listed()[0].TunnelSession.ID != a.ID() {
		t.Fatalf("%v, listed %+v", err, l.listed())
	}
	stranger := l.agent()
	var refused *tunnel.Error
	if err := stranger.Unbind(t.Context(), bound.EndpointID); !errors.As(err, &refused) ||
		!l.IsOnline(TunnelGroup(l.accountID, labels)) {
		t.Errorf("another session gave it back: %v", err)
	}
	must.Succeed(t, a.Unbind(t.Context(), bound.EndpointID))
	if l.IsOnline(TunnelGroup(l.accountID, labels)) || h.Context().Err() == nil || len(l.listed()) != 0 {
		t.Error("the tunnel outlived its goodbye")
	}
	l.tunnel(a, labels, "")
	a.stop()
	wait.Until(t, "the tunnel of a lost session is gone", func() bool {
		return !l.IsOnline(TunnelGroup(l.accountID, labels)) && len(l.listed()) == 0
	})
}

// TestTunnel_ResumeReplacesOldTunnel resumes a tunnel whose connection died unnoticed: the new
// tunnel replaces it.
func TestTunnel_ResumeReplacesOldTunnel(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	labels := map[string]string{"app": "api"}
	ghost := l.agent()
	first := l.tunnel(ghost, labels, "")
	second := l.tunnel(l.agent(), labels, first.ResumeSecret)
	wait.Until(t, "the ghost is gone", func() bool { return len(l.listed()) == 1 })
	if got := l.listed()[0].ID; got != second.EndpointID || first.EndpointID == second.EndpointID {
		t.Errorf("listed %s, want %s", got, second.EndpointID)
	}
	if l.tunnel(l.agent(), labels, "flr_made-up"); len(l.listed()) != 2 {
		t.Error("a made-up secret ended a tunnel")
	}
}

func TestBindLabels_NeedsRule(t *testing.T) {
	t.Parallel()
	l := newTestService(t, "bind:app=a*", "bind:site=a")
	a := l.agent()
	for _, labels := range []map[string]string{{"app": "web"}, {"app": "api", "site": "b"}, {"other": "x"}} {
		var refused *tunnel.Error
		_, err := a.Bind(t.Context(), tunnel.Bind{Labels: labels})
		if !errors.As(err, &refused) || refused.Code != tunnel.CodeForbidden ||
			!strings.Contains(refused.Msg, l.tokenID) {
			t.Errorf("%v: %v", labels, err)
		}
	}
	other := l.agent()
	l.tunnel(a, map[string]string{"app": "api", "site": "a"}, "")
	l.tunnel(other, map[string]string{"app": "api"}, "")
	acl := []string{"bind:app=api"}
	if _, err := l.store.PatchAuthtoken(t.Context(), account.Caller{AccountID: l.accountID}, l.tokenID,
		account.AuthtokenPatch{ACL: &acl}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.ended:
		var why *tunnel.Error
		if !errors.As(err, &why) || why.Code != tunnel.CodeForbidden || !strings.Contains(why.Msg, "app=api site=a") {
			t.Errorf("ended by %v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the session lives on under rules that do not admit its tunnel")
	}
	if other.Err() != nil {
		t.Errorf("a session that the new rules admit ended: %v", other.Err())
	}
}

func TestBindLabels_ListsInvalidFields(t *testing.T) {
	t.Parallel()
	_, err := tunnelRequest(&session{}, tunnel.Bind{
		Labels: map[string]string{"a b": "c"}, URL: "http://a.b", Binding: "kubernetes", Name: "n", Description: "d",
		HostMode: "rewrite", TrafficPolicy: "{}",
		PoolingEnabled: true, UpstreamURL: "http://u:p@x", UpstreamProtocol: "h3", Metadata: strings.Repeat("x", 5000),
	})
	var fields []string
	for _, f := range account.FieldsOf(err) {
		fields = append(fields, f.Field)
	}
	want := []string{"labels", "metadata", "upstream_protocol", "upstream_url", "url", "binding", "name", "description",
		"host_mode", "traffic_policy", "pooling_enabled"}
	if !slices.Equal(fields, want) || strings.Contains(err.Error(), "u:p") {
		t.Errorf("fields %v, want %v; %v", fields, want, err)
	}
}

// TestStream_CannotReachTunnelByID opens a forwarder's stream by the ID of a labelled tunnel:
// there is no such endpoint.
func TestStream_CannotReachTunnelByID(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	bound := l.tunnel(l.agent(), map[string]string{"app": "api"}, "")
	ep, err := l.streams.endpoint(t.Context(), l.accountID, tunnel.OpenHeader{EndpointID: bound.EndpointID})
	if account.CodeOf(err) != account.CodeNotFound {
		t.Errorf("got %+v, %v", ep, err)
	}
}

// TestChooseLabels_WaitsAfterStart requires that after a restart of the service a connection
// waits a limited time for agents to reconnect.
func TestChooseLabels_WaitsAfterStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ after, want time.Duration }{
		"just started": {0, maxReconnectWait}, "most are back": {11 * time.Second, time.Second},
		"all are back": {12 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Logger: slog.New(slog.DiscardHandler)})
				time.Sleep(c.after) // the bubble's time
				asked := time.Now()
				_, err := s.Choose(t.Context(), TunnelGroup("ac-1", map[string]string{"b": "2", "a": "1"}))
				if account.CodeOf(err) != account.CodeEndpointOffline || !strings.Contains(err.Error(), "a=1 b=2") ||
					time.Since(asked) != c.want {
					t.Errorf("%v after %v, want %v", err, time.Since(asked), c.want)
				}
			})
		})
	}
}

func TestBind_ChecksPolicy(t *testing.T) {
	t.Parallel()
	l := newTestService(t)
	a := l.agent()
	bind := func(policy string) error {
		_, err := a.Bind(t.Context(), tunnel.Bind{URL: "tcp://a.b:1", UpstreamURL: "tcp://localhost:1",
			TrafficPolicy: policy})
		return err
	}
	var refused *tunnel.Error
	if err := bind("secret: hunter2"); !errors.As(err, &refused) || refused.Code != tunnel.CodeInvalid ||
		!strings.Contains(refused.Msg, "takes no traffic policies") || strings.Contains(refused.Msg, "hunter2") {
		t.Errorf("without CheckPolicy: %v", err)
	}
	l.binder.checkPolicy = func(text, scheme, binding string) (account.PolicyFacts, error) {
		if text == "bad" {
			return account.PolicyFacts{}, account.Invalid("traffic_policy", "bad", "line 1")
		}
		return account.PolicyFacts{Digest: text + " " + scheme + " " + binding}, nil
	}
	if err := bind("bad"); !errors.As(err, &refused) || !strings.Contains(refused.Msg, "line 1") {
		t.Errorf("a bad policy: %v", err)
	}
	if err := bind(strings.Repeat("x", account.MaxTrafficPolicy+1)); !errors.As(err, &refused) ||
		!strings.Contains(refused.Msg, "at most 65536") {
		t.Errorf("a long policy: %v", err)
	}
	must.Succeed(t, bind("good"))
	page, err := l.store.ListEndpoints(t.Context(), l.accountID, account.EndpointFilter{}, account.Page{})
	if err != nil || len(page.Endpoints) != 1 {
		t.Fatalf("%v, %+v", err, page)
	}
	if got, err := l.store.Endpoint(t.Context(), l.accountID, page.Endpoints[0].ID); err != nil ||
		got.TrafficPolicy != "good" {
		t.Errorf("kept %+v, %v", got, err)
	}
}

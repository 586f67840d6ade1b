// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestSession_StopIsFinal(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://stop.demo:1"}, servicetest.ServeTCP(t, servicetest.Echo))
	bound := servicetest.Receive(t, a.Bound, "bind")
	f := r.StartForwarder()
	stream := f.OpenEcho(bound)
	path := "/tunnel_sessions/" + a.Session().ID() + "/stop"
	began := time.Now()
	r.RequireStatus("POST", path, nil, http.StatusNoContent)
	wantCode(t, "agent", servicetest.Receive(t, a.Ended, "end of the agent"), tunnel.CodeStop, "stopped")
	checkAborted(t, stream)
	checkWithinASecond(t, began, "the session ended")
	r.RequireStatus("POST", path, nil, http.StatusNotFound)
	servicetest.Eventually(t, "the endpoint of a stopped session is offline", func() bool {
		var e account.Endpoint
		r.CallAPI("GET", "/endpoints/"+bound.EndpointID, nil, &e)
		return e.Status == account.StatusOffline
	})
}

func TestSession_RestartKeepsEndpoint(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://again.demo:1"}, servicetest.ServeTCP(t, servicetest.Echo))
	first := servicetest.Receive(t, a.Bound, "bind")
	before := a.Session().ID()
	r.RequireStatus("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNoContent)
	if again := servicetest.Receive(t, a.Bound, "second bind"); again.EndpointID != first.EndpointID {
		t.Errorf("the endpoint is %s after the restart, was %s", again.EndpointID, first.EndpointID)
	}
	s, err := a.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	if s.ID() == before {
		t.Error("the session is the same")
	}
	r.RequireStatus("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNotFound)
}

func TestSession_EndRefusesForeignAndForwarderSessions(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://mine.demo:1"}, servicetest.ServeTCP(t, servicetest.Echo))
	servicetest.Receive(t, a.Bound, "bind")
	forwarder, err := r.StartForwarder().Wait(servicetest.Context(t))
	must.Succeed(t, err)
	own, other := r.APIKey, r.CreateAccount().APIKey
	for _, how := range []string{"stop", "restart"} {
		r.APIKey = other
		r.RequireStatus("POST", "/tunnel_sessions/"+a.Session().ID()+"/"+how, nil, http.StatusNotFound)
		r.APIKey = own
		r.RequireStatus("POST", "/tunnel_sessions/"+forwarder.ID()+"/"+how, nil, http.StatusNotFound)
		r.RequireStatus("POST", "/tunnel_sessions/ts-none/"+how, nil, http.StatusNotFound)
	}
	if a.Session() == nil || forwarder.Err() != nil {
		t.Error("a session ended")
	}
}

// TestSession_EndNamesActorAndReason reads the audit events of sessions that end in every way.
func TestSession_EndNamesActorAndReason(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	up := servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo))
	key, err := r.OpenStore().APIKeyBySecret(servicetest.Context(t), r.APIKey)
	must.Succeed(t, err)
	checkEnd := func(session, by, reason, because string) {
		t.Helper()
		var e account.AuditEvent
		servicetest.Eventually(t, "the record of the end of "+session, func() bool {
			var list struct{ Events []account.AuditEvent }
			r.CallAPI("GET", "/events?type=tunnel_session.ended&object_id="+session, nil, &list)
			if len(list.Events) > 0 {
				e = list.Events[0]
			}
			return len(list.Events) > 0
		})
		if e.Principal == nil || e.Principal.ID != by || !strings.Contains(e.Details["reason"], reason) ||
			e.Details["because"] != because {
			t.Errorf("the end of a session: by %+v, %v; want %s, %q", e.Principal, e.Details, by, reason)
		}
	}
	start := func(token, url string) (*servicetest.Agent, string) {
		t.Helper()
		a := r.StartAgentWith(token, tunnel.Bind{URL: url}, up)
		servicetest.Receive(t, a.Bound, "bind")
		s, err := a.Wait(servicetest.Context(t))
		must.Succeed(t, err)
		return a, s.ID()
	}
	_, stopped := start(r.Authtoken, "tcp://stop.demo:1")
	r.RequireStatus("POST", "/tunnel_sessions/"+stopped+"/stop", nil, http.StatusNoContent)
	checkEnd(stopped, key.ID, "stopped through the API", "")

	_, restarted := start(r.Authtoken, "tcp://restart.demo:1")
	r.RequireStatus("POST", "/tunnel_sessions/"+restarted+"/restart", nil, http.StatusNoContent)
	checkEnd(restarted, key.ID, "restarted through the API", "")

	token := r.CreateAuthtoken("bind:*")
	_, narrowed := start(*token.Token, "tcp://narrowed.demo:1")
	r.RequireStatus("PATCH", "/credentials/"+token.ID, map[string]any{"acl": []string{"bind:tcp://other.demo:1"}},
		http.StatusOK)
	checkEnd(narrowed, key.ID, "no bind rule", token.ID)

	r.RequireStatus("PATCH", "/credentials/"+token.ID, map[string]any{"acl": []string{"bind:*"}}, http.StatusOK)
	_, revoked := start(*token.Token, "tcp://revoked.demo:1")
	r.RequireStatus("DELETE", "/credentials/"+token.ID, nil, http.StatusNoContent)
	checkEnd(revoked, key.ID, "deleted or has expired", token.ID)

	itself, gone := start(r.Authtoken, "tcp://own.demo:1")
	var session account.TunnelSession
	r.CallAPI("GET", "/tunnel_sessions/"+gone, nil, &session)
	itself.Stop()
	checkEnd(gone, session.Credential.ID, "the connection ended", "")
}

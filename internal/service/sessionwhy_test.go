// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// TestSession_EndNamesActorAndReason reads the audit events of sessions that end in every way.
func TestSession_EndNamesActorAndReason(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	up := servicetest.RelayTo(servicetest.ServeTCP(t, servicetest.Echo))
	key, err := r.OpenStore().APIKeyBySecret(servicetest.Context(t), r.APIKey)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

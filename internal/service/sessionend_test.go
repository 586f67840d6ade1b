// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"errors"
	"io"
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
	a := r.StartAgent(tunnel.Bind{URL: "tcp://stop.demo:1"}, servicetest.ServeTCP(t, echo))
	bound := servicetest.Receive(t, a.Bound, "bind")
	f := r.StartForwarder()
	stream := f.Open(servicetest.OpenHeader(t, bound))
	_, _ = io.WriteString(stream, "x")
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	path := "/tunnel_sessions/" + a.Session().ID() + "/stop"
	began := time.Now()
	callAPIWanting(r, "POST", path, nil, http.StatusNoContent)
	wantCode(t, "agent", servicetest.Receive(t, a.Ended, "end of the agent"), tunnel.CodeStop, "stopped")
	if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the open stream read %v", err)
	}
	checkWithinASecond(t, began, "the session ended")
	callAPIWanting(r, "POST", path, nil, http.StatusNotFound)
	for deadline := servicetest.Context(t); ; {
		var e account.Endpoint
		if r.CallAPI("GET", "/endpoints/"+bound.EndpointID, nil, &e); e.Status == account.StatusOffline {
			break
		}
		if deadline.Err() != nil {
			t.Fatal("the endpoint of a stopped session is not offline")
		}
	}
}

func TestSession_RestartKeepsEndpoint(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://again.demo:1"}, servicetest.ServeTCP(t, echo))
	first := servicetest.Receive(t, a.Bound, "bind")
	before := a.Session().ID()
	callAPIWanting(r, "POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNoContent)
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
	callAPIWanting(r, "POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNotFound)
}

func TestSession_EndRefusesForeignAndForwarderSessions(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgent(tunnel.Bind{URL: "tcp://mine.demo:1"}, servicetest.ServeTCP(t, echo))
	servicetest.Receive(t, a.Bound, "bind")
	forwarder, err := r.StartForwarder().Wait(servicetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	st := r.OpenStore()
	other, err := st.CreateAccount(servicetest.Context(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	_, theirs, err := st.IssueAPIKey(servicetest.Context(t), other.ID, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := r.APIKey
	for _, how := range []string{"stop", "restart"} {
		r.APIKey = theirs
		callAPIWanting(r, "POST", "/tunnel_sessions/"+a.Session().ID()+"/"+how, nil, http.StatusNotFound)
		r.APIKey = mine
		callAPIWanting(r, "POST", "/tunnel_sessions/"+forwarder.ID()+"/"+how, nil, http.StatusNotFound)
		callAPIWanting(r, "POST", "/tunnel_sessions/ts-none/"+how, nil, http.StatusNotFound)
	}
	if a.Session() == nil || forwarder.Err() != nil {
		t.Error("a session ended")
	}
}

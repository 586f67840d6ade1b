// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestSession_StopIsFinal(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	a := r.startAgent(tunnel.Bind{URL: "tcp://stop.demo:1"}, serveTCP(t, echo))
	bound := receive(t, a.bound, "bind")
	f := r.startForwarder()
	stream := f.open(openHeader(t, bound))
	_, _ = io.WriteString(stream, "x")
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	path := "/tunnel_sessions/" + a.Session().ID() + "/stop"
	began := time.Now()
	r.callAPIWanting("POST", path, nil, http.StatusNoContent)
	wantCode(t, "agent", receive(t, a.ended, "end of the agent"), tunnel.CodeStop, "stopped")
	if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the open stream read %v", err)
	}
	checkWithinASecond(t, began, "the session ended")
	r.callAPIWanting("POST", path, nil, http.StatusNotFound)
	for deadline := testContext(t); ; {
		var e account.Endpoint
		if r.callAPI("GET", "/endpoints/"+bound.EndpointID, nil, &e); e.Status == account.StatusOffline {
			break
		}
		if deadline.Err() != nil {
			t.Fatal("the endpoint of a stopped session is not offline")
		}
	}
}

func TestSession_RestartKeepsEndpoint(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	a := r.startAgent(tunnel.Bind{URL: "tcp://again.demo:1"}, serveTCP(t, echo))
	first := receive(t, a.bound, "bind")
	before := a.Session().ID()
	r.callAPIWanting("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNoContent)
	if again := receive(t, a.bound, "second bind"); again.EndpointID != first.EndpointID {
		t.Errorf("the endpoint is %s after the restart, was %s", again.EndpointID, first.EndpointID)
	}
	s, err := a.Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.ID() == before {
		t.Error("the session is the same")
	}
	r.callAPIWanting("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNotFound)
}

func TestSession_EndRefusesForeignAndForwarderSessions(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	a := r.startAgent(tunnel.Bind{URL: "tcp://mine.demo:1"}, serveTCP(t, echo))
	receive(t, a.bound, "bind")
	forwarder, err := r.startForwarder().Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	st := r.openStore()
	other, err := st.CreateAccount(testContext(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	_, theirs, err := st.IssueAPIKey(testContext(t), other.ID, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := r.apiKey
	for _, how := range []string{"stop", "restart"} {
		r.apiKey = theirs
		r.callAPIWanting("POST", "/tunnel_sessions/"+a.Session().ID()+"/"+how, nil, http.StatusNotFound)
		r.apiKey = mine
		r.callAPIWanting("POST", "/tunnel_sessions/"+forwarder.ID()+"/"+how, nil, http.StatusNotFound)
		r.callAPIWanting("POST", "/tunnel_sessions/ts-none/"+how, nil, http.StatusNotFound)
	}
	if a.Session() == nil || forwarder.Err() != nil {
		t.Error("a session ended")
	}
}

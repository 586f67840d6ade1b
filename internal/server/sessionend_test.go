// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestASessionIsStoppedForGood(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.agent(tunnel.Bind{URL: "tcp://stop.demo:1"}, tcpServer(t, echo))
	bound := receive(t, a.bound, "bind")
	f := r.forwarder()
	stream := f.open(headerOf(t, bound))
	_, _ = io.WriteString(stream, "x")
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	path := "/tunnel_sessions/" + a.Session().ID() + "/stop"
	began := time.Now()
	r.change("POST", path, nil, http.StatusNoContent)
	wantCode(t, "agent", receive(t, a.ended, "end of the agent"), tunnel.CodeStop, "stopped")
	if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the open stream read %v", err)
	}
	soon(t, began, "the session ended")
	r.change("POST", path, nil, http.StatusNotFound)
	for deadline := within(t); ; {
		var e account.Endpoint
		if r.api("GET", "/endpoints/"+bound.EndpointID, nil, &e); e.Status == account.StatusOffline {
			break
		}
		if deadline.Err() != nil {
			t.Fatal("the endpoint of a stopped session is not offline")
		}
	}
}

func TestARestartedSessionComesBackWithItsEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.agent(tunnel.Bind{URL: "tcp://again.demo:1"}, tcpServer(t, echo))
	first := receive(t, a.bound, "bind")
	before := a.Session().ID()
	r.change("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNoContent)
	if again := receive(t, a.bound, "second bind"); again.EndpointID != first.EndpointID {
		t.Errorf("the endpoint is %s after the restart, was %s", again.EndpointID, first.EndpointID)
	}
	s, err := a.Wait(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.ID() == before {
		t.Error("the session is the same")
	}
	r.change("POST", "/tunnel_sessions/"+before+"/restart", nil, http.StatusNotFound)
}

func TestSessionsOfOthersAndOfForwardersCannotBeEnded(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.agent(tunnel.Bind{URL: "tcp://mine.demo:1"}, tcpServer(t, echo))
	receive(t, a.bound, "bind")
	forwarder, err := r.forwarder().Wait(within(t))
	if err != nil {
		t.Fatal(err)
	}
	st := r.admin()
	other, err := st.CreateAccount(within(t), "other")
	if err != nil {
		t.Fatal(err)
	}
	_, theirs, err := st.IssueAPIKey(within(t), other.ID, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := r.apiKey
	for _, how := range []string{"stop", "restart"} {
		r.apiKey = theirs
		r.change("POST", "/tunnel_sessions/"+a.Session().ID()+"/"+how, nil, http.StatusNotFound)
		r.apiKey = mine
		r.change("POST", "/tunnel_sessions/"+forwarder.ID()+"/"+how, nil, http.StatusNotFound)
		r.change("POST", "/tunnel_sessions/ts-none/"+how, nil, http.StatusNotFound)
	}
	if a.Session() == nil || forwarder.Err() != nil {
		t.Error("a session ended")
	}
}

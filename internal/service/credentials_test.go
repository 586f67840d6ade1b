// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// create creates an object through the API.
func (r *testServer) create(path string, in, out any) {
	r.t.Helper()
	if status := r.callAPI("POST", path, in, out); status != http.StatusCreated {
		r.t.Fatalf("POST %s: status %d", path, status)
	}
}

// callAPIWanting calls the API and wants the status.
func (r *testServer) callAPIWanting(method, path string, in any, want int) {
	r.t.Helper()
	if status := r.callAPI(method, path, in, nil); status != want {
		r.t.Fatalf("%s %s: status %d, want %d", method, path, status, want)
	}
}

// apiClient is a client with this key.
func (r *testServer) apiClient(key string) *apiclient.Client {
	r.t.Helper()
	tlsConfig, err := trust.Options{CASHA256: r.addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Options{BaseURL: "https://" + r.addrs.Service.String(),
		APIKey: func() (string, error) {
			return key, nil
		}, TLS: tlsConfig})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.CloseIdleConnections)
	return c
}

// expire has the credential at the path end in a while, and returns when.
func (r *testServer) expire(path string) time.Time {
	r.t.Helper()
	at := time.Now().Add(3 * time.Second)
	r.callAPIWanting("PATCH", path, map[string]any{"expires_at": at.Format(time.RFC3339Nano)}, http.StatusOK)
	return at
}

// remove deletes the object at the path, and returns when.
func (r *testServer) remove(path string) time.Time {
	r.t.Helper()
	r.callAPIWanting("DELETE", path, nil, http.StatusNoContent)
	return time.Now()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// checkWithinASecond fails when what should take a second took much longer: the intervals have
// tests of their own.
func checkWithinASecond(t *testing.T, since time.Time, what string) {
	t.Helper()
	took := time.Since(since)
	t.Logf("%s after %v", what, took)
	if took > 15*time.Second {
		t.Errorf("%s only after %v", what, took)
	}
}

func TestAuthtoken_EndClosesSessionsAndStreams(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	kept := receive(t, r.startAgent(tunnel.Bind{URL: "tcp://kept.demo:1"}, serveTCP(t, echo)).bound, "bind")
	r.startForwarder()
	for name, end := range map[string]func(path string) time.Time{"deleted": r.remove, "expired": r.expire} {
		t.Run(name, func(t *testing.T) {
			var token account.Authtoken
			r.create("/credentials", map[string]any{"acl": []string{"bind:tcp://*.demo:*", "connect:" + r.operatorID}}, &token)
			a := r.startAgentWith(*token.Token, tunnel.Bind{URL: "tcp://" + name + ".demo:1"}, nil)
			receive(t, a.bound, "bind")
			f := r.startForwarderAs(*token.Token, r.operatorID)
			stream := f.open(openHeader(t, kept))
			_, _ = io.WriteString(stream, "x")
			if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			began := end("/credentials/" + token.ID)
			wantCode(t, "agent", receive(t, a.ended, "end of the agent"), tunnel.CodeTokenRevoked, "deleted or has expired")
			wantCode(t, "forwarder", receive(t, f.ended, "end of the forwarder"), tunnel.CodeTokenRevoked)
			if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the forwarder's open stream read %v", err)
			}
			checkWithinASecond(t, began, "sessions ended")
			again := r.startAgentWith(*token.Token, tunnel.Bind{URL: "tcp://again.demo:1"}, nil)
			wantCode(t, "a new session", receive(t, again.ended, "refusal"), tunnel.CodeBadToken)
		})
	}
}

func TestAuthtoken_ACLChangeEndsSessions(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	r.startForwarder()
	var token account.Authtoken
	r.create("/credentials", map[string]any{"acl": []string{"bind:*", "connect:*"}}, &token)
	path := "/credentials/" + token.ID
	stays := r.startAgentWith(*token.Token, tunnel.Bind{URL: "tcp://stays.demo:1"}, nil)
	receive(t, stays.bound, "bind")
	goes := r.startAgentWith(*token.Token, tunnel.Bind{URL: "tcp://goes.demo:1"}, nil)
	receive(t, goes.bound, "bind")
	f := r.startForwarderAs(*token.Token, r.operatorID)
	if _, err := f.Wait(testContext(t)); err != nil {
		t.Fatal(err)
	}
	session := stays.Session()
	r.callAPIWanting("PATCH", path, map[string]any{"acl": []string{"bind:tcp://stays.demo:1"}}, http.StatusOK)
	began := time.Now()
	wantCode(t, "agent", receive(t, goes.ended, "end of the agent"), tunnel.CodeForbidden, "no bind rule",
		"tcp://goes.demo:1")
	wantCode(t, "forwarder", receive(t, f.ended, "end of the forwarder"), tunnel.CodeForbidden, "no connect rule")
	checkWithinASecond(t, began, "sessions ended")
	// The session that is still admitted lives on, with the new rules.
	if stays.Session() != session {
		t.Error("an admitted session ended, too")
	}
	var refused *tunnel.Error
	if _, err := session.Bind(testContext(t), tunnel.Bind{URL: "tcp://more.demo:1"}); !errors.As(err, &refused) ||
		refused.Code != tunnel.CodeForbidden {
		t.Errorf("a bind against the new rules: %v", err)
	}
}

func TestAPIKey_EndClosesWatches(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	for name, end := range map[string]func(path string) time.Time{"deleted": r.remove, "expired": r.expire} {
		t.Run(name, func(t *testing.T) {
			var key account.APIKey
			r.create("/api_keys", map[string]any{"scopes": []string{"operator"}}, &key)
			client := r.apiClient(*key.Token)
			list, err := client.ListEndpoints(testContext(t), account.EndpointFilter{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := client.WatchEndpoints(context.WithoutCancel(testContext(t)), account.EndpointFilter{}, list.Version)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			began := end("/api_keys/" + key.ID)
			for {
				if e, err := w.Next(); err != nil {
					if !errors.Is(err, io.EOF) {
						t.Errorf("the watch broke: %v", err)
					}
					break
				} else if e.Type != account.Bookmark {
					t.Errorf("event %+v", e)
				}
			}
			checkWithinASecond(t, began, "the watch ended")
			if _, err := client.ListEndpoints(testContext(t), account.EndpointFilter{}); account.CodeOf(err).
				Status() != http.StatusUnauthorized {
				t.Errorf("a list after the end: %v", err)
			}
		})
	}
}

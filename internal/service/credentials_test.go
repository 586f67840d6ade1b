// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

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
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// createObject creates an object through the API.
func createObject(r *servicetest.Server, path string, in, out any) {
	r.T.Helper()
	if status := r.CallAPI("POST", path, in, out); status != http.StatusCreated {
		r.T.Fatalf("POST %s: status %d", path, status)
	}
}

// callAPIWanting calls the API and wants the status.
func callAPIWanting(r *servicetest.Server, method, path string, in any, want int) {
	r.T.Helper()
	if status := r.CallAPI(method, path, in, nil); status != want {
		r.T.Fatalf("%s %s: status %d, want %d", method, path, status, want)
	}
}

// newAPIClient returns a client with the key.
func newAPIClient(r *servicetest.Server, key string) *apiclient.Client {
	r.T.Helper()
	tlsConfig, err := trust.Options{CASHA256: r.Addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		r.T.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Options{BaseURL: "https://" + r.Addrs.Service.String(),
		APIKey: func() (string, error) {
			return key, nil
		}, TLS: tlsConfig})
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(c.CloseIdleConnections)
	return c
}

// endCredential ends the credential at a path and returns when it ends.
type endCredential func(r *servicetest.Server, path string) time.Time

// expireCredential sets the credential at the path to expire soon, and returns when.
func expireCredential(r *servicetest.Server, path string) time.Time {
	r.T.Helper()
	at := time.Now().Add(3 * time.Second)
	callAPIWanting(r, "PATCH", path, map[string]any{"expires_at": at.Format(time.RFC3339Nano)}, http.StatusOK)
	return at
}

// deleteCredential deletes the credential at the path, and returns when.
func deleteCredential(r *servicetest.Server, path string) time.Time {
	r.T.Helper()
	callAPIWanting(r, "DELETE", path, nil, http.StatusNoContent)
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
	r := servicetest.Start(t)
	kept := servicetest.Receive(t,
		r.StartAgent(tunnel.Bind{URL: "tcp://kept.demo:1"}, servicetest.ServeTCP(t, echo)).Bound, "bind")
	r.StartForwarder()
	for name, end := range map[string]endCredential{"deleted": deleteCredential, "expired": expireCredential} {
		t.Run(name, func(t *testing.T) {
			var token account.Authtoken
			createObject(r, "/credentials",
				map[string]any{"acl": []string{"bind:tcp://*.demo:*", "connect:" + r.OperatorID}},
				&token)
			a := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://" + name + ".demo:1"}, nil)
			servicetest.Receive(t, a.Bound, "bind")
			f := r.StartForwarderAs(*token.Token, r.OperatorID)
			stream := f.Open(servicetest.OpenHeader(t, kept))
			_, _ = io.WriteString(stream, "x")
			if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			began := end(r, "/credentials/"+token.ID)
			wantCode(t, "agent", servicetest.Receive(t, a.Ended, "end of the agent"), tunnel.CodeTokenRevoked,
				"deleted or has expired")
			wantCode(t, "forwarder", servicetest.Receive(t, f.Ended, "end of the forwarder"), tunnel.CodeTokenRevoked)
			if _, err := stream.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the forwarder's open stream read %v", err)
			}
			checkWithinASecond(t, began, "sessions ended")
			again := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://again.demo:1"}, nil)
			wantCode(t, "a new session", servicetest.Receive(t, again.Ended, "refusal"), tunnel.CodeBadToken)
		})
	}
}

func TestAuthtoken_ACLChangeEndsSessions(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	r.StartForwarder()
	var token account.Authtoken
	createObject(r, "/credentials", map[string]any{"acl": []string{"bind:*", "connect:*"}}, &token)
	path := "/credentials/" + token.ID
	stays := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://stays.demo:1"}, nil)
	servicetest.Receive(t, stays.Bound, "bind")
	goes := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://goes.demo:1"}, nil)
	servicetest.Receive(t, goes.Bound, "bind")
	f := r.StartForwarderAs(*token.Token, r.OperatorID)
	if _, err := f.Wait(servicetest.Context(t)); err != nil {
		t.Fatal(err)
	}
	session := stays.Session()
	callAPIWanting(r, "PATCH", path, map[string]any{"acl": []string{"bind:tcp://stays.demo:1"}}, http.StatusOK)
	began := time.Now()
	wantCode(t, "agent", servicetest.Receive(t, goes.Ended, "end of the agent"), tunnel.CodeForbidden, "no bind rule",
		"tcp://goes.demo:1")
	wantCode(t, "forwarder", servicetest.Receive(t, f.Ended, "end of the forwarder"), tunnel.CodeForbidden,
		"no connect rule")
	checkWithinASecond(t, began, "sessions ended")
	// The session that is still admitted lives on, with the new rules.
	if stays.Session() != session {
		t.Error("an admitted session ended, too")
	}
	var refused *tunnel.Error
	if _, err := session.Bind(servicetest.Context(t), tunnel.Bind{URL: "tcp://more.demo:1"}); !errors.As(err,
		&refused) ||
		refused.Code != tunnel.CodeForbidden {
		t.Errorf("a bind against the new rules: %v", err)
	}
}

func TestAPIKey_EndClosesWatches(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	for name, end := range map[string]endCredential{"deleted": deleteCredential, "expired": expireCredential} {
		t.Run(name, func(t *testing.T) {
			var key account.APIKey
			createObject(r, "/api_keys", map[string]any{"scopes": []string{"operator"}}, &key)
			client := newAPIClient(r, *key.Token)
			list, err := client.ListEndpoints(servicetest.Context(t), account.EndpointFilter{})
			if err != nil {
				t.Fatal(err)
			}
			w, err := client.WatchEndpoints(context.WithoutCancel(servicetest.Context(t)), account.EndpointFilter{},
				list.Version)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			began := end(r, "/api_keys/"+key.ID)
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
			if _, err := client.ListEndpoints(servicetest.Context(t), account.EndpointFilter{}); account.CodeOf(err).
				Status() != http.StatusUnauthorized {
				t.Errorf("a list after the end: %v", err)
			}
		})
	}
}

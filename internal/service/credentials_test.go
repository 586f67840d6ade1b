// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// newAPIClient returns a client with the key.
func newAPIClient(r *servicetest.Server, key string) *apiclient.Client {
	r.T.Helper()
	c, err := apiclient.New(apiclient.Options{BaseURL: "https://" + r.Addrs.Service.String(),
		APIKey: func() (string, error) { return key, nil }, TLS: r.ClientTLS()})
	must.Succeed(r.T, err)
	r.T.Cleanup(c.CloseIdleConnections)
	return c
}

// endCredential ends the credential at a path and returns when it ends.
type endCredential func(r *servicetest.Server, path string) time.Time

// expireCredential sets the credential at the path to expire soon, and returns when.
func expireCredential(r *servicetest.Server, path string) time.Time {
	r.T.Helper()
	at := time.Now().Add(3 * time.Second)
	r.RequireStatus("PATCH", path, map[string]any{"expires_at": at.Format(time.RFC3339Nano)}, http.StatusOK)
	return at
}

// deleteAuthtokenInStore deletes the authtoken at the path as a command in another process does,
// and returns when.
func deleteAuthtokenInStore(r *servicetest.Server, path string) time.Time {
	r.T.Helper()
	st := r.OpenStore()
	accounts, err := st.ListAccounts(servicetest.Context(r.T))
	must.Succeed(r.T, err)
	must.Succeed(r.T, st.DeleteAuthtoken(servicetest.Context(r.T), account.Caller{AccountID: accounts[0].ID},
		strings.TrimPrefix(path, "/credentials/")))
	return time.Now()
}

// deleteCredential deletes the credential at the path, and returns when.
func deleteCredential(r *servicetest.Server, path string) time.Time {
	r.T.Helper()
	r.RequireStatus("DELETE", path, nil, http.StatusNoContent)
	return time.Now()
}

// checkAborted fails unless the next read from the stream fails with an abort.
func checkAborted(t *testing.T, st *tunnel.Stream) {
	t.Helper()
	if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the open stream read %v, want an abort", err)
	}
}

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
	keeper := r.StartAgent(tunnel.Bind{URL: "tcp://kept.demo:1"}, servicetest.ServeTCP(t, servicetest.Echo))
	kept := servicetest.Receive(t, keeper.Bound, "bind")
	session := keeper.Session()
	r.StartForwarder()
	for name, end := range map[string]endCredential{"deleted": deleteCredential, "expired": expireCredential,
		"deleted-in-store": deleteAuthtokenInStore} {
		t.Run(name, func(t *testing.T) {
			token := r.CreateAuthtoken("bind:tcp://*.demo:*", "connect:"+r.OperatorID)
			a := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://" + name + ".demo:1"}, nil)
			servicetest.Receive(t, a.Bound, "bind")
			f := r.StartForwarderAs(*token.Token, r.OperatorID)
			stream := f.OpenEcho(kept)
			began := end(r, "/credentials/"+token.ID)
			wantCode(t, "agent", servicetest.Receive(t, a.Ended, "end of the agent"), tunnel.CodeTokenRevoked,
				"deleted or has expired")
			wantCode(t, "forwarder", servicetest.Receive(t, f.Ended, "end of the forwarder"), tunnel.CodeTokenRevoked,
				"deleted")
			checkAborted(t, stream)
			checkWithinASecond(t, began, "sessions ended")
			again := r.StartAgentWith(*token.Token, tunnel.Bind{URL: "tcp://again.demo:1"}, nil)
			wantCode(t, "a new session", servicetest.Receive(t, again.Ended, "refusal"), tunnel.CodeBadToken)
		})
	}
	if keeper.Session() != session {
		t.Error("another token's session ended, too")
	}
}

func TestAuthtoken_ACLChangeEndsSessions(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	r.StartForwarder()
	token := r.CreateAuthtoken("bind:*", "connect:*")
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
	r.RequireStatus("PATCH", path, map[string]any{"acl": []string{"bind:tcp://stays.demo:1"}}, http.StatusOK)
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
			r.CreateObject("/api_keys", map[string]any{"scopes": []string{"operator"}}, &key)
			client := newAPIClient(r, *key.Token)
			list, err := client.ListEndpoints(servicetest.Context(t), account.EndpointFilter{})
			must.Succeed(t, err)
			w, err := client.WatchEndpoints(context.WithoutCancel(servicetest.Context(t)), account.EndpointFilter{},
				list.Version)
			must.Succeed(t, err)
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

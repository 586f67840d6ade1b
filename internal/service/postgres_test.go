// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// statuses reads the endpoints' statuses by URL.
func statuses(r *servicetest.Server) map[string]string {
	r.T.Helper()
	var page struct {
		Endpoints []struct {
			URL    string `json:"url"`
			Status string `json:"status"`
		} `json:"endpoints"`
	}
	found := map[string]string{}
	if r.CallAPI("GET", "/endpoints", nil, &page) == http.StatusOK {
		for _, e := range page.Endpoints {
			found[e.URL] = e.Status
		}
	}
	return found
}

// checkUnavailable checks that reads and writes are answered with 503.
func checkUnavailable(r *servicetest.Server) {
	r.T.Helper()
	for _, c := range []struct {
		method, path string
	}{{"GET", "/endpoints"}, {"GET", "/endpoints/ep-none"}, {"POST", "/api_keys"}} {
		var answer struct {
			ErrorCode account.Code `json:"error_code"`
		}
		var body any
		if c.method == "POST" {
			body = map[string]string{}
		}
		if status := r.CallAPI(c.method, c.path, body, &answer); status != http.StatusServiceUnavailable ||
			answer.ErrorCode != account.CodeUnavailable {
			r.T.Errorf("%s %s without a database: %d %s", c.method, c.path, status, answer.ErrorCode)
		}
	}
}

// deleteNewestToken deletes the newest authtoken as a command in another process does.
func deleteNewestToken(r *servicetest.Server) {
	r.T.Helper()
	admin := r.OpenStore()
	accounts, err := admin.ListAccounts(servicetest.Context(r.T))
	must.Succeed(r.T, err)
	tokens, err := admin.AllAuthtokens(servicetest.Context(r.T), accounts[0].ID)
	must.Succeed(r.T, err)
	must.Succeed(r.T, admin.DeleteAuthtoken(servicetest.Context(r.T), account.Caller{AccountID: accounts[0].ID},
		tokens[0].ID))
}

// TestServer_AnswersLostDatabaseWith503 stops PostgreSQL under a running service. Sessions live on;
// the endpoint of an agent that stopped meanwhile is offline afterwards.
func TestServer_AnswersLostDatabaseWith503(t *testing.T) {
	t.Parallel()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the service has ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(postgres.URL(t))
	must.Succeed(t, err)
	u.User = url.UserPassword("fairlead", "hunter2-word")
	key := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(key, []byte(strings.Repeat("0f", 32)), 0o600))
	r := servicetest.Start(t, func(o *service.Options) { o.DatabaseURL, o.SecretKeyFile = u.String(), key })
	stays := r.StartAgent(tunnel.Bind{URL: "http://stays.demo"}, "127.0.0.1:1")
	leaves := r.StartAgent(tunnel.Bind{URL: "http://leaves.demo"}, "127.0.0.1:1")
	servicetest.Receive(t, stays.Bound, "bind")
	servicetest.Receive(t, leaves.Bound, "bind")

	must.Succeed(t, postgres.Down())
	checkUnavailable(r)
	leaves.Stop()
	must.Succeed(t, postgres.Up())
	servicetest.Eventually(t, "the stopped agent's endpoint is offline", func() bool {
		return statuses(r)["http://leaves.demo"] == account.StatusOffline
	})
	if got := statuses(r)["http://stays.demo"]; got != account.StatusOnline {
		t.Errorf("the endpoint of the agent that stayed is %q", got)
	}
	if len(stays.Bound) != 0 {
		t.Error("the agent that stayed had to bind again")
	}
	servicetest.Eventually(t, "writes go on", func() bool {
		return r.CallAPI("POST", "/api_keys", map[string]string{}, nil) == http.StatusCreated
	})

	deleteNewestToken(r)
	servicetest.Eventually(t, "the session of a deleted token ends", func() bool {
		return statuses(r)["http://stays.demo"] == account.StatusOffline
	})
	if log := r.Log.String(); strings.Contains(log, "hunter2-word") || !strings.Contains(log, "postgres://fairlead@") {
		t.Error("the log has the database's password, or does not name the database")
	}
	r.Stop()
	if err := servicetest.Receive(t, r.Finished, "end"); err != nil {
		t.Errorf("the service ended with %v", err)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// statusCase is a change of a good environment, the hop that it breaks, and text of the answer.
type statusCase struct {
	env    map[string]string // an empty value removes a variable
	broken string
	want   string
}

func statusCases(t *testing.T, own servicetest.Credentials, other, narrow, caller string) map[string]statusCase {
	t.Helper()
	const token, key = agentconfig.EnvAuthtoken, envAPIKey
	zeros := strings.Repeat("0", 64)
	exposed := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(exposed, []byte("api_key: "+own.APIKey+"\n"), 0o644))
	wrong := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(wrong, []byte("colour: red\nshape: round\n"), 0o600))
	return map[string]statusCase{
		"all good":     {nil, "", `"account_id": "` + own.AccountID + `"`},
		"no authtoken": {map[string]string{token: ""}, "", "for agents, store one"},
		"no API key":   {map[string]string{key: ""}, "", "for fairlead api, store one"},
		"neither":      {map[string]string{token: "", key: ""}, "authtoken", "none is configured"},
		"bad authtoken": {map[string]string{token: goodToken}, "authtoken",
			"the one in use is from FAIRLEAD_AUTHTOKEN"},
		"authtoken that may not bind": {map[string]string{token: caller}, "", "it is for fairlead connect"},
		"malformed authtoken":         {map[string]string{token: "SECRET"}, "authtoken", "those begin with flt_"},
		"bad API key": {map[string]string{key: "flk_SECRET"}, "api-key",
			"the one in use is from FAIRLEAD_API_KEY"},
		"narrow API key": {map[string]string{key: narrow}, "", "the API key may not read them"},
		"two accounts": {map[string]string{key: other}, "",
			"the authtoken is of another account, " + own.AccountID},
		"exposed file": {map[string]string{key: "", agentconfig.EnvConfig: exposed}, "",
			"others can read the API key in " + exposed},
		"wrong file":      {map[string]string{agentconfig.EnvConfig: wrong}, "config", `tunnels; config file`},
		"no server":       {map[string]string{agentconfig.EnvServerURL: ""}, "server", "fairlead login --server"},
		"no fingerprint":  {map[string]string{agentconfig.EnvCASHA256: "x"}, "authority", "correct the setting"},
		"wrong authority": {map[string]string{agentconfig.EnvCASHA256: zeros}, "connection", "cannot be trusted"},
		"no service": {map[string]string{agentconfig.EnvServerURL: "https://" + closedport.Reserve(t)}, "connection",
			"present, not checked (FAIRLEAD_API_KEY)"},
	}
}

// TestStatus_NamesWhatIsBroken asks a real service, at which an agent of the account has two
// endpoints.
func TestStatus_NamesWhatIsBroken(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	own := r.CreateAccount()
	agent := r.StartAgentWith(own.Authtoken, tunnel.Bind{URL: "http://a.demo", Binding: "kubernetes",
		UpstreamURL: "http://localhost:1"}, nil)
	servicetest.Receive(t, agent.Bound, "bind")
	_, narrow, err := r.OpenStore().IssueAPIKey(t.Context(), own.AccountID, "",
		[]account.Scope{account.ScopeIdentities}, nil)
	must.Succeed(t, err)
	_, caller, err := r.OpenStore().IssueAuthtoken(t.Context(), own.AccountID, "", []string{"connect:http://*.demo"})
	must.Succeed(t, err)
	for name, c := range statusCases(t, own, r.APIKey, narrow, caller) {
		t.Run(name, func(t *testing.T) {
			if name != "all good" { // which counts the sessions, and comes before those that others open
				t.Parallel()
			}
			env := map[string]string{"HOME": t.TempDir(), envAPIKey: own.APIKey,
				agentconfig.EnvServerURL: "https://" + r.Addrs.Service.String(),
				agentconfig.EnvCASHA256:  r.Addrs.CAFingerprint, agentconfig.EnvAuthtoken: own.Authtoken}
			maps.Copy(env, c.env)
			got := fairlead(t, env, "", "status", "-o", "json")
			var report statusReport
			must.Succeed(t, json.Unmarshal([]byte(got.out), &report))
			if report.Broken != c.broken || (got.code == 0) != (c.broken == "") || got.code > 1 || got.err != "" ||
				!strings.Contains(got.out, c.want) {
				t.Errorf("want %q broken and %q, got %+v", c.broken, c.want, got)
			}
			for _, secret := range []string{own.Authtoken, own.APIKey, r.APIKey, narrow, caller, goodToken, "SECRET"} {
				if strings.Contains(got.out, secret) {
					t.Errorf("a credential is shown:\n%s", got.out)
				}
			}
			if name != "all good" {
				return
			}
			if report.ServerVersion != version.String() || *report.Endpoints != 1 || *report.Sessions != 1 ||
				report.Hop("endpoints").Detail != "1, 1 online" {
				t.Errorf("the account: %s", got.out)
			}
			table := fairlead(t, env, "", "status")
			if table.code != 0 || !strings.HasSuffix(table.out, "\nready\n") ||
				strings.Count(table.out, "✓") != len(report.Hops) || report.HasStatus("sessions", path.Skipped) {
				t.Errorf("as a table: %+v", table)
			}
		})
	}
	if r := fairlead(t, nil, "", "status", "-o", "xml"); r.code != exitUsage {
		t.Errorf("another format: %+v", r)
	}
}

// TestStatus_BlamesNoKeyForService asks a service whose API does not answer.
func TestStatus_BlamesNoKeyForService(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	r := fairlead(t, map[string]string{"HOME": t.TempDir(), envAPIKey: "flk_good", agentconfig.EnvServerURL: svc.url,
		agentconfig.EnvCAFile: svc.caFile}, "", "status")
	if !strings.Contains(r.out, "broken: api-key") || strings.Contains(r.out, "store a good one") {
		t.Errorf("got %+v", r)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// configFile writes a config file that names the service.
func configFile(t *testing.T, svc *service, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if svc != nil {
		text = fmt.Sprintf("server_url: %s\nca_file: %s\n%s", svc.url, svc.caFile, text)
	}
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const threeEntries = `endpoints:
  - {name: web, url: "http://web.demo", upstream: 8080, host_header: rewrite, traffic_policy: "{}", description: d,
     service_labels: "team=web"}
  - {name: pool, url: "tcp://pool.demo:1", upstream: 5432, pooling_enabled: true, replace_pool_policy: true}
tunnels:
  - {name: api, labels: {app: api, site: a}, upstream: "https://localhost:9", metadata: m}
`

func TestStart_BindsSelectedEntries(t *testing.T) {
	t.Parallel()
	web := tunnel.Bind{URL: "http://web.demo", Binding: "kubernetes", Name: "web", Description: "d",
		UpstreamURL: "http://localhost:8080", UpstreamProtocol: "http1",
		HostMode: "rewrite", ServiceLabels: "team=web", TrafficPolicy: "{}"}
	pool := tunnel.Bind{URL: "tcp://pool.demo:1", Binding: "kubernetes", UpstreamURL: "tcp://localhost:5432",
		PoolingEnabled: true, ReplacePoolPolicy: true}
	api := tunnel.Bind{Labels: map[string]string{"app": "api", "site": "a"}, Metadata: "m",
		UpstreamURL: "https://localhost:9", UpstreamProtocol: "http1"}
	for name, c := range map[string]struct {
		args []string
		want []tunnel.Bind
	}{
		"all":   {[]string{"--all"}, []tunnel.Bind{api, pool, web}},
		"two":   {[]string{"web", "api"}, []tunnel.Bind{api, web}},
		"one":   {[]string{"pool"}, []tunnel.Bind{pool}},
		"twice": {[]string{"pool", "pool"}, []tunnel.Bind{pool}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t, nil, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out, errOut bytes.Buffer
			env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, append([]string{"start", "--config", configFile(t, svc, threeEntries)}, c.args...),
					console{in: strings.NewReader(""), out: &out, err: &errOut, env: func(k string) string {
						return env[k]
					}})
			}()
			var got []tunnel.Bind
			for range c.want {
				b := <-svc.binds
				b.BindID = "" // random
				got = append(got, b)
			}
			for range c.want {
				<-svc.bound
			}
			cancel()
			if exit := <-code; exit != 0 || errOut.Len() > 0 {
				t.Errorf("exit code %d, %s", exit, errOut.String())
			}
			slices.SortFunc(got, func(a, b tunnel.Bind) int { return strings.Compare(a.URL, b.URL) })
			slices.SortFunc(c.want, func(a, b tunnel.Bind) int { return strings.Compare(a.URL, b.URL) })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStart_AllRefusedExitsWithFirstCode(t *testing.T) {
	t.Parallel()
	for code, refused := range map[int]tunnel.Code{exitURLTaken: tunnel.CodeURLTaken,
		exitCredentials: tunnel.CodeForbidden, exitUsage: tunnel.CodeInvalid} {
		svc := newService(t, nil, refusal(refused, "no"))
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", "start", "--all", "--config",
			configFile(t, svc, threeEntries))
		if r.code != code || strings.Count(r.err, "\n") != 1 || strings.Count(r.out, "refused: ") != 3 {
			t.Errorf("%s: %+v", refused, r)
		}
	}
}

func TestStart_ListsAllErrors(t *testing.T) {
	t.Parallel()
	const bad = `endpoints:
  - {name: a, url: "ftp://x", upstream: "x y", colour: red}
  - {name: b, url: "tcp://db.demo:1", upstream: 1, host_header: rewrite}
  - {name: c, url: "tcp://db.demo:1", upstream: 1, upstream_protocol: http1, binding: none}
  - {name: d, url: "tcp://db.demo:1"}
  - {name: good, url: "http://good.demo", upstream: 1}
  - {url: "http://nameless.demo"}
tunnels:
  - {name: e, upstream: 1}
`
	path := configFile(t, nil, bad)
	ofFile := []string{
		`line 2: endpoint "a": unknown field "colour"`,
		`line 2: endpoint "a": url "ftp://x": the scheme must be http or tcp`,
		`line 2: endpoint "a": upstream "x y": only printable`,
		`line 3: endpoint "b": host_header "rewrite": a tcp endpoint has none`,
		`line 4: endpoint "c": binding "none": must be kubernetes, internal or public`,
		`line 5: endpoint "d": upstream is missing`,
		`line 9: tunnel "e": labels "": at least one label is required`,
		`line 7: endpoints[5]: name "": each entry needs a name`,
		`line 7: endpoints[5]: upstream is missing`,
	}
	for name, c := range map[string]struct {
		args []string
		want []string // beside those of the file
	}{
		"all": {[]string{"start", "--all"}, []string{
			`line 5: endpoint "d": url "tcp://db.demo:1": endpoint "b" has this host and port, too`}},
		"one": {[]string{"start", "good"}, nil},
		"no such one": {[]string{"start", "goof", "x"},
			[]string{`has no endpoint or tunnel "goof"; it has a, b, c, d, good, e`, `tunnel "x"`}},
		"none": {[]string{"start"}, []string{"give --all, or names"}},
		"both": {[]string{"start", "--all", "good"}, []string{"--all and names exclude each other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.want = append(c.want, ofFile...)
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken,
				agentconfig.EnvServerURL: "https://127.0.0.1:1"}, "", append(c.args, "--config", path)...)
			if r.code != exitUsage || r.out != "" || strings.Count(r.err, "\n") != len(c.want) {
				t.Errorf("got %+v, want code 2 and %d lines", r, len(c.want))
			}
			for _, want := range c.want {
				if !strings.Contains(r.err, want) {
					t.Errorf("%q is not printed:\n%s", want, r.err)
				}
			}
		})
	}
	if r := fairlead(t, nil, "", "start", "--all", "--config", configFile(t, nil, "")); r.code != exitUsage ||
		!strings.Contains(r.err, "has no endpoints and no tunnels") {
		t.Errorf("an empty file: %+v", r)
	}
}

// TestStart_ListsSettingsWithEndpoints: one run is enough to mend a file, for start and config
// check.
func TestStart_ListsSettingsWithEndpoints(t *testing.T) {
	t.Parallel()
	path := configFile(t, nil, "server_url: ftp://x\ncolour: red\nca_sha256: zz\nendpoints:\n- {name: a}\n")
	for _, args := range [][]string{{"start", "a"}, {"start", "--all"}, {"config", "check"}} {
		r := fairlead(t, nil, "", append(args, "--config", path)...)
		for _, want := range []string{`unknown key "colour"`, "the scheme must be https", `ca-sha256 "zz"`,
			"no authtoken is configured", `endpoint "a": url is missing`, `endpoint "a": upstream is missing`} {
			if !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 6 {
				t.Errorf("%v: no %q in\n%s", args, want, r.err)
			}
		}
	}
}

func TestConfigCheck_PrintsEntries(t *testing.T) {
	t.Parallel()
	env := map[string]string{agentconfig.EnvAuthtoken: goodToken, agentconfig.EnvServerURL: "https://s"}
	r := fairlead(t, env, "", "config", "check", "--config", configFile(t, nil, threeEntries))
	for _, want := range []string{
		"endpoint \"web\" http://web.demo -> http://localhost:8080\n",
		"endpoint \"pool\" tcp://pool.demo:1 -> tcp://localhost:5432\n",
		"tunnel \"api\" app=api site=a -> https://localhost:9\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	if r.code != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	r = fairlead(t, nil, "", "config", "check", "--config", configFile(t, nil, "endpoints:\n- {name: a}\ntunnels: x\n"))
	if r.code != exitUsage || strings.Count(r.err, "\n") != 5 || !strings.Contains(r.err, "no server is configured") ||
		!strings.Contains(r.err, "no authtoken is configured") ||
		!strings.Contains(r.err, `endpoint "a": url is missing`) {
		t.Errorf("%+v", r)
	}
}

func TestConfigCheck_ChecksPolicies(t *testing.T) {
	t.Parallel()
	env := map[string]string{agentconfig.EnvAuthtoken: goodToken, agentconfig.EnvServerURL: "https://s"}
	const bad = `endpoints:
  - name: web
    url: http://web.demo
    upstream: 1
    traffic_policy:
      on_http_request:
        - actions: [{type: nonsense}]
  - {name: ok, url: "http://ok.demo", upstream: 1, traffic_policy: "on_http_request: []"}
  - {name: both, url: "ftp://x", upstream: 1, traffic_policy: "on_http_request: 7"}
`
	r := fairlead(t, env, "", "config", "check", "--config", configFile(t, nil, bad))
	if r.code != exitUsage || strings.Count(r.err, "\n") != 3 ||
		!strings.Contains(r.err, `line 5: endpoint "web": traffic_policy: `) || !strings.Contains(r.err, "nonsense") ||
		!strings.Contains(r.err, `endpoint "both": traffic_policy: `) ||
		!strings.Contains(r.err, `endpoint "both": url "ftp://x"`) {
		t.Errorf("%+v", r)
	}
}

func TestHTTP_BindsPolicyOfFlag(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, refusal(tunnel.CodeInvalid, "traffic_policy: line 1"))
	path := filepath.Join(t.TempDir(), "policy.yml")
	must.Succeed(t, os.WriteFile(path, []byte("on_http_request: []\n"), 0o600))
	r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", "http", "8080", "--url", "http://a.b",
		"--server", svc.url, "--ca-file", svc.caFile,
		"--traffic-policy-file", path, "--host-header", "intranet.corp:8080", "--pooling-enabled",
		"--replace-pool-policy")
	if r.code != exitUsage || !strings.Contains(r.err, "traffic_policy: line 1") {
		t.Errorf("%+v", r)
	}
	if b := <-svc.binds; b.TrafficPolicy != "on_http_request: []\n" || b.HostMode != "intranet.corp:8080" ||
		!b.ReplacePoolPolicy {
		t.Errorf("%+v", b)
	}
}

func TestCompletion_OffersEntries(t *testing.T) {
	t.Parallel()
	r := fairlead(t, nil, "", "__complete", "start", "--config", configFile(t, nil, threeEntries), "")
	if r.code != 0 || !strings.HasPrefix(r.out, "web\npool\napi\n") {
		t.Errorf("%+v", r)
	}
}

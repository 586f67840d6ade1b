// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSealedAgent_RefusesWhatAgentsCannotDo checks that flags and the config file name what the agent
// of a sealed endpoint cannot do, and the remedy, before it connects.
func TestSealedAgent_RefusesWhatAgentsCannotDo(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	folder := filepath.Join(o.home, "api")
	o.run(0, "request", "--out", folder)
	o.run(0, "sign", "--url", "http://api.demo", "--url", "tcp://db.demo:5432", filepath.Join(folder, "tls.csr"))
	policy := func(text string) string { return o.write("policy.yaml", []byte(text)) }
	for name, c := range map[string]struct {
		policy, url, field, value string // field and value are further ones.
		want                      string
	}{
		"an action of the service": {policy: "on_http_request: [{actions: [{type: forward-internal, " +
			"config: {url: 'http://x.internal'}}]}]", url: "http://api.demo",
			want: "forward-internal takes the service"},
		"a location": {policy: "on_tcp_connect: [{expressions: [conn.geo.city == 'x'], actions: [{type: deny}]}]",
			url: "tcp://db.demo:5432", want: "has no data about locations"},
		"callers unknown": {policy: "on_tcp_connect: [{expressions: [conn.cluster == 'x'], actions: [{type: deny}]}]",
			url: "http://api.demo", want: "give --seal-callers"},
		"a mistake": {policy: "on_http_request: [{actions: [{type: denny}]}]", url: "http://api.demo",
			want: `there is no action "denny"`},
		"a pool's policy": {policy: "{}", url: "http://api.demo", field: "replace_pool_policy", value: "true",
			want: "applies the policy of its own file"},
		"another name": {policy: "{}", url: "http://other.demo", want: "does not name http://other.demo"},
	} {
		file := policy(c.policy)
		scheme, _, _ := strings.Cut(c.url, ":")
		args := []string{scheme, "8080", "--url", c.url, "--server", "https://s", "--sealed", folder,
			"--traffic-policy-file", file}
		config := "endpoints:\n- {name: a, url: '" + c.url + "', upstream: '8080', sealed: '" + folder +
			"', traffic_policy_file: '" + file + "'"
		if c.field != "" {
			args = append(args, "--pooling-enabled", "--"+strings.ReplaceAll(c.field, "_", "-")+"="+c.value)
			config += ", pooling_enabled: true, " + c.field + ": " + c.value
		}
		if r := fairlead(t, nil, "", args...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: flags: %+v, want %q", name, r, c.want)
		}
		r := fairlead(t, nil, "", "config", "check", "--config", o.write("config.yaml", []byte(config+"}\n")))
		if r.code == 0 || strings.Count(r.err, c.want) != 1 {
			t.Errorf("%s: config: %+v, want %q once", name, r, c.want)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"strings"
	"testing"
)

// TestSealing_RefusesWhatTakesTheService checks that what an agent cannot do or know is a mistake in
// the policy of a sealed endpoint, with its place and a remedy, and none in others.
func TestSealing_RefusesWhatTakesTheService(t *testing.T) {
	t.Parallel()
	const rule = "on_http_request:\n- actions:\n  - type: "
	reads := func(expression string) string {
		return "on_tcp_connect:\n- expressions: [\"" + expression + "\"]\n  actions: [{type: deny}]"
	}
	for name, c := range map[string]struct {
		text   string
		proven bool
		want   string // "" = nothing is refused
	}{
		"login": {rule + "oauth\n    config: {provider: github, client_id: x, client_secret: y}", true,
			"line 3, column 11: oauth needs the service, "},
		"internal endpoint": {rule + "forward-internal\n    config: {url: 'http://x.internal'}", true,
			"line 3, column 11: forward-internal needs the service, "},
		"backend": {rule + "forward-backend\n    config: {backend_id: bkdfo-06f0l2rj1qg4o3b5e6s7t8u9v0}", true,
			"line 3, column 11: forward-backend needs the service, "},
		"location":       {reads("conn.geo.city == 'x'"), true, "line 2, column 26: conn.geo.city is never known"},
		"has a location": {reads("has(conn.geo.city)"), true, "line 2, column 21: conn.geo.city is never known"},
		"annotations":    {reads("conn.pod.annotations['a'] == 'b'"), true, "annotations of pods are not sent"},
		"unproven pod":   {reads("conn.pod.namespace == 'x'"), false, "with --seal-callers"},
		"cluster":        {reads("1 == 1 && conn.cluster == 'x'"), false, "line 2, column 32: conn.cluster is never"},
		"proven pod":     {reads("conn.pod.namespace == 'x' && conn.cluster == 'y'"), true, ""},
		"address":        {reads("conn.client_ip == '192.0.2.1'"), false, ""},
		"headers":        {rule + "add-headers\n    config: {headers: {x: y}}", false, ""},
	} {
		for _, sealed := range []bool{false, true} {
			o, want := Options{Scheme: "http"}, ""
			if sealed {
				o.Sealing, want = &Sealing{CallersProven: c.proven}, c.want
			}
			_, problems := Check(c.text, o)
			if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 ||
				!strings.Contains(problems[0].String(), want)) {
				t.Errorf("%s, sealed: %t: %v, want %q", name, sealed, problems, want)
			}
		}
	}
}

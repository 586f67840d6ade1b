// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestPolicy_ReadsAnnotations checks that a policy by a pod's annotations applies to those that the
// forwarder has sent, and that others are unknown to it.
func TestPolicy_ReadsAnnotations(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	f, a := r.StartForwarder(), r.Tenant()
	deny := func(url, expression string) tunnel.Bound {
		policy := "on_http_request:\n  - expressions: [\"" + expression + "\"]\n    actions: [{type: deny}]\n"
		return a.Cloud(account.BindingKubernetes, url, policy, a.Answer(200, "served"))
	}
	onlyRed := deny("http://red.demo", "!(conn.pod.annotations['example.com/team'] == 'red')")
	noMark := deny("http://unmarked.demo", "'mark' in conn.pod.annotations")
	long := map[string]string{"example.com/team": "red", "long": strings.Repeat("x", 2048)}
	for name, c := range map[string]struct {
		notes           map[string]string
		red, isUnmarked bool
	}{
		"red":      {map[string]string{"example.com/team": "red", "other": "a\nb"}, true, true},
		"blue":     {map[string]string{"example.com/team": "blue", "mark": ""}, false, false},
		"none":     {map[string]string{}, false, true},
		"unknown":  {nil, false, false},
		"too long": {long, false, false},
	} {
		for _, ask := range []struct {
			bound tunnel.Bound
			admit bool
		}{{onlyRed, c.red}, {noMark, c.isUnmarked}} {
			h := servicetest.OpenHeader(t, ask.bound)
			h.Pod = &tunnel.PodIdentity{Namespace: "shop", Name: "web-1", ServiceAccount: "web", Annotations: c.notes}
			st := f.Open(h)
			_, _ = fmt.Fprintf(st, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", h.Host)
			if answer := servicetest.ReadAll(t, st); strings.HasPrefix(answer, "HTTP/1.1 200 ") != ask.admit {
				t.Errorf("%s at %s: %s", name, ask.bound.URL, answer)
			}
		}
	}
}

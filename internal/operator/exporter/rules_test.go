// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestRules_EndpointURL(t *testing.T) {
	t.Parallel()
	const kubernetes, public, internal = account.BindingKubernetes, account.BindingPublic, account.BindingInternal
	for _, tt := range []struct {
		binding, url string
		patterns     []string
		want         string // the URL, or a part of the problem's sentence
	}{
		{kubernetes, "http://api.demo", nil, "http://api.demo"},
		{kubernetes, "http://API.Demo:80/", nil, "http://api.demo"},
		{kubernetes, "tcp://db.demo:5432", nil, "tcp://db.demo:5432"},
		{kubernetes, "http://api.other", nil, "give http://api.demo"},
		{kubernetes, "tcp://db.other:1", nil, "export.urls"},
		{kubernetes, "http://api.shared", []string{"http://*.shared"}, "http://api.shared"},
		{kubernetes, "http://api.shared:8080", []string{"http://*.shared"}, "export.urls"},
		{kubernetes, "http://api.shared:8080", []string{"http://*.shared:*"}, "http://api.shared:8080"},
		{kubernetes, "http://api.notshared", []string{"http://*.shared"}, "export.urls"},
		{kubernetes, "http://api.other", []string{"tcp://*", "http://api.*"}, "http://api.other"},
		{kubernetes, "http://api.other", []string{"*"}, "http://api.other"},
		{kubernetes, "http://api", nil, "exactly two DNS labels"},
		{kubernetes, "https://api.demo", nil, "public binding"},
		{public, "https://api.example.com", nil, "https://api.example.com"},
		{public, "https://api", nil, "at least two DNS labels"},
		{internal, "http://api.internal", nil, "http://api.internal"},
		{internal, "http://api.demo", nil, "must end in .internal"},
	} {
		u, p := rules{urlPatterns: tt.patterns}.endpointURL(tt.binding, tt.url, "demo")
		switch {
		case p == nil && u.String() != tt.want:
			t.Errorf("%s %s: %s, want %s", tt.binding, tt.url, u, tt.want)
		case p != nil && (p.Reason != v1alpha1.ReasonURLNotAllowed || !strings.Contains(p.Message, tt.want)):
			t.Errorf("%s %s: %+v, want %s", tt.binding, tt.url, p, tt.want)
		}
	}
}

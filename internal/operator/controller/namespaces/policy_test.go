// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package namespaces_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	parse := func(allow, deny []string, selector string) namespaces.Policy {
		o := namespaces.Options{AllowNamespaces: allow, DenyNamespaces: deny, NamespaceSelector: selector}
		var c options.Checker
		p := o.Parse("fairlead", &c)
		must.Succeed(t, c.Err())
		return p
	}
	open, list := parse(nil, []string{"kube-*", "vault"}, ""), parse([]string{"team-a"}, []string{"kube-*"}, "")
	for _, tc := range []struct {
		policy    namespaces.Policy
		namespace string
		why       string // empty: allowed
	}{
		{open, "team-a", ""},
		{open, "fairlead", "the operator's own namespace"},
		{open, "kube-system", "binding.namespaces.deny has kube-*"},
		{open, "kube", ""},
		{open, "vault", "binding.namespaces.deny has vault"},
		{open, "vault-2", ""},
		{list, "team-a", ""},
		{list, "team-b", "is not in binding.namespaces.allow"},
		{list, "fairlead", "the operator's own namespace"},
		{parse(nil, []string{"*"}, ""), "team-a", "binding.namespaces.deny has *"},
		{namespaces.Policy{}, "kube-system", ""},
	} {
		got := tc.policy.RefusalReason(tc.namespace)
		if (got == "") != (tc.why == "") || !strings.Contains(got, tc.why) {
			t.Errorf("%s: %q, want %q", tc.namespace, got, tc.why)
		}
	}
	consent := parse(nil, nil, "fairlead=yes,team in (a, b)")
	for _, tc := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, false}, {map[string]string{"fairlead": "yes"}, false},
		{map[string]string{"fairlead": "yes", "team": "b"}, true},
	} {
		if got := consent.MissingConsent("x", tc.labels); (got == "") != tc.want {
			t.Errorf("%v: %q", tc.labels, got)
		}
	}
	if got := open.MissingConsent("x", nil); got != "" {
		t.Errorf("without a selector: %q", got)
	}
}

func TestPolicy_ParseErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allow, deny []string
		selector    string
		want        string
	}{
		"list and selector": {[]string{"a"}, nil, "x=y", "give either --allow-namespaces or --namespace-selector"},
		"own listed":        {[]string{"fairlead"}, nil, "", "the operator's own namespace"},
		"listed and denied": {[]string{"kube-a"}, []string{"kube-*"}, "", "binding.namespaces.deny has kube-*"},
		"pattern listed":    {[]string{"a*"}, nil, "", "give names of namespaces"},
		"star in front":     {nil, []string{"*-prod"}, "", "prefixes such as kube-*"},
		"no selector":       {nil, nil, "a in b", "give a label selector"},
	} {
		o := namespaces.Options{AllowNamespaces: tc.allow, DenyNamespaces: tc.deny, NamespaceSelector: tc.selector}
		var c options.Checker
		o.Parse("fairlead", &c)
		err := c.Err()
		var e *account.Error
		if !errors.As(err, &e) || len(e.Fields) == 0 || !strings.Contains(e.Fields[0].Rule, tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

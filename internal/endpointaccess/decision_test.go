// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointaccess_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// policyOf returns a policy of namespace demo.
func policyOf(t *testing.T, name, spec string) endpointaccess.Policy {
	t.Helper()
	p := endpointaccess.Policy{Namespace: "demo", Name: name, UID: "uid-" + name, Generation: 1}
	must.Succeed(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// callers are those of the tests.
var callers = map[string]*endpointaccess.Caller{
	"demo/web": {Namespace: "demo", ServiceAccount: "web", NamespaceLabels: endpointaccess.LabelMap{"team": "shop"},
		PodLabels: endpointaccess.LabelMap{"app": "web", "tier": "front"}},
	"demo/job": {Namespace: "demo", ServiceAccount: "default", NamespaceLabels: endpointaccess.LabelMap{"team": "shop"},
		PodLabels: endpointaccess.LabelMap{"app": "job"}},
	"data/web": {Namespace: "data", ServiceAccount: "web", NamespaceLabels: endpointaccess.LabelMap{"team": "data"},
		PodLabels: endpointaccess.LabelMap{"app": "web"}},
	"data/bare": {Namespace: "data", ServiceAccount: "default",
		NamespaceLabels: endpointaccess.LabelMap{"team": "data"}, PodLabels: endpointaccess.LabelMap{}},
	"unknown": nil,
}

func TestRules_AllowSelectedCallers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, spec, allowed string }{
		{"without from", "endpoints: [api]", ""},
		{"empty from", "{endpoints: [api], from: []}", ""},
		{"every pod of the namespace", "{endpoints: [api], from: [{podSelector: {}}]}", "demo/job demo/web"},
		{"every known pod", "{endpoints: [api], from: [{namespaceSelector: {}}]}",
			"data/bare data/web demo/job demo/web"},
		{"pods by label are of the own namespace",
			"{endpoints: [api], from: [{podSelector: {matchLabels: {app: web}}}]}",
			"demo/web"},
		{"namespace and pod", `{endpoints: [api], from: [{namespaceSelector: {matchLabels: {team: data}},
			podSelector: {matchLabels: {app: web}}}]}`, "data/web"},
		{"ServiceAccounts are of the own namespace",
			"{endpoints: [api], from: [{serviceAccounts: [web]}]}", "demo/web"},
		{"ServiceAccounts of namespaces",
			"{endpoints: [api], from: [{serviceAccounts: [web, x], namespaceSelector: {}}]}",
			"data/web demo/web"},
		{"all fields of a peer", `{endpoints: [api], from: [{serviceAccounts: [web], namespaceSelector: {},
			podSelector: {matchLabels: {tier: front}}}]}`, "demo/web"},
		{"two peers unite", `{endpoints: [api], from: [{serviceAccounts: [web]},
			{namespaceSelector: {matchLabels: {team: data}}}]}`, "data/bare data/web demo/web"},
		{"NotIn selects pods without the label", `{endpoints: [api], from: [{namespaceSelector: {}, podSelector:
			{matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}]}`, "data/bare demo/job"},
		{"DoesNotExist", `{endpoints: [api], from: [{namespaceSelector: {}, podSelector:
			{matchExpressions: [{key: app, operator: DoesNotExist}]}}]}`, "data/bare"},
		{"Exists and In", `{endpoints: [api], from: [{podSelector: {matchExpressions: [{key: app, operator: Exists},
			{key: tier, operator: In, values: [back, front]}]}}]}`, "demo/web"},
		{"an invalid peer selects none, the others some", `{endpoints: [api], from: [{podSelector: {matchExpressions:
			[{key: app, operator: NotExists}]}}, {serviceAccounts: [default]}]}`, "demo/job"},
		{"other endpoints", "endpoints: [ap, apis, api2]", "data/bare data/web demo/job demo/web unknown"},
		{"a wildcard", "endpoints: ['a*']", ""},
		{"a wildcard for nothing", "endpoints: ['*api*']", ""},
		{"a wildcard that does not match", "endpoints: ['*-api']", "data/bare data/web demo/job demo/web unknown"},
		{"the port", "{endpoints: [api], ports: [80]}", ""},
		{"another port", "{endpoints: [api, '*'], ports: [8080]}", "data/bare data/web demo/job demo/web unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rules := endpointaccess.Compile([]endpointaccess.Policy{policyOf(t, "p", c.spec)}, endpointaccess.Allow)
			target := endpointaccess.TargetOf("api.demo", 80)
			for name, caller := range callers {
				want := strings.Contains(" "+c.allowed+" ", " "+name+" ")
				if d := rules.Decide(target, caller); d.Allowed != want {
					t.Errorf("%s: %s", name, d)
				}
			}
		})
	}
}

// TestRules_TrustNamedProxies: a peer with forwardedHeaders: Trust is enough, whichever other peer
// selects the caller, too; a caller that only others select is not believed.
func TestRules_TrustNamedProxies(t *testing.T) {
	t.Parallel()
	const trustWeb = "{serviceAccounts: [web], forwardedHeaders: Trust}"
	for _, c := range []struct{ name, spec, other, trusted string }{
		{"no one by default", "{endpoints: [api], from: [{namespaceSelector: {}}]}", "", ""},
		{"Replace", "{endpoints: [api], from: [{namespaceSelector: {}, forwardedHeaders: Replace}]}", "", ""},
		{"one ServiceAccount", "{endpoints: [api], from: [" + trustWeb + "]}", "", "demo/web"},
		{"beside all others", "{endpoints: [api], from: [{namespaceSelector: {}}, " + trustWeb + "]}", "", "demo/web"},
		{"by another object", "{endpoints: [api], from: [{namespaceSelector: {}}]}",
			"{endpoints: ['*'], from: [{podSelector: {matchLabels: {app: job}}}, " + trustWeb + "]}", "demo/web"},
		{"for another endpoint", "{endpoints: [api], from: [{namespaceSelector: {}}]}",
			"{endpoints: [db], from: [" + trustWeb + "]}", ""},
		{"an invalid peer", `{endpoints: [api], from: [{namespaceSelector: {}}, {forwardedHeaders: Trust, podSelector:
			{matchExpressions: [{key: app, operator: NotExists}]}}]}`, "", ""},
	} {
		policies := []endpointaccess.Policy{policyOf(t, "p", c.spec)}
		if c.other != "" {
			policies = append(policies, policyOf(t, "q", c.other))
		}
		rules := endpointaccess.Compile(policies, endpointaccess.Allow)
		for name, caller := range callers {
			d := rules.Decide(endpointaccess.TargetOf("api.demo", 80), caller)
			if want := c.trusted == name; d.TrustsForwarding != want ||
				strings.Contains(d.String(), "X-Forwarded headers are kept") != want {
				t.Errorf("%s, %s: trusted %v: %s", c.name, name, d.TrustsForwarding, d)
			}
		}
	}
}

func TestRules_DecisionNamesRule(t *testing.T) {
	t.Parallel()
	policies := []endpointaccess.Policy{
		policyOf(t, "web",
			"{endpoints: ['*'], from: [{podSelector: {matchLabels: {app: none}}}, {serviceAccounts: [web]}]}"),
		policyOf(t, "api", "endpoints: [api, 'a*']"),
	}
	allow := endpointaccess.Compile(policies, endpointaccess.Allow)
	deny := endpointaccess.Compile(policies, endpointaccess.Deny)
	api, elsewhere := endpointaccess.TargetOf("api.demo.eu-1", 80), endpointaccess.TargetOf("api.prod", 80)
	for _, c := range []struct {
		rules  *endpointaccess.Rules
		target endpointaccess.Target
		caller string
		reason endpointaccess.Reason
		text   string
	}{
		{allow, api, "demo/web", endpointaccess.ReasonPeer, "allowed by EndpointAccess demo/web, from[1]"},
		{allow, api, "demo/job", endpointaccess.ReasonNoPeer,
			"denied: no rule of namespace demo's EndpointAccess api, web allows the caller"},
		{allow, api, "unknown", endpointaccess.ReasonUnknownCaller,
			"denied: namespace demo's EndpointAccess api, web allows known pods only, and " +
				"which pod calls is not known"},
		{allow, elsewhere, "unknown", endpointaccess.ReasonUnrestricted,
			"allowed: no EndpointAccess of namespace prod selects it"},
		{deny, elsewhere, "demo/web", endpointaccess.ReasonDefault,
			"denied: no EndpointAccess of namespace prod selects it, and the installation denies such calls"},
		{deny, api, "demo/web", endpointaccess.ReasonPeer, "allowed by EndpointAccess demo/web, from[1]"},
	} {
		if d := c.rules.Decide(c.target, callers[c.caller]); d.Reason != c.reason || d.String() != c.text {
			t.Errorf("%s calls %+v: %s, %q", c.caller, c.target, d.Reason, d)
		}
	}
	if !deny.Restricted(elsewhere) || allow.Restricted(elsewhere) || !allow.Restricted(api) {
		t.Error("wrong targets are restricted")
	}
	if s := allow.Selecting(api); len(s) != 2 || s[0].Name != "api" || s[1].Name != "web" {
		t.Errorf("%d policies select the target", len(s))
	}
}

// TestRules_VanishedPolicies checks that a policy that has vanished holds for what no other one
// selects, and of several those that vanished last.
func TestRules_VanishedPolicies(t *testing.T) {
	t.Parallel()
	gone := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	vanished := func(name, spec string, second int) endpointaccess.Policy {
		p := policyOf(t, name, spec)
		p.Vanished = gone.Add(time.Duration(second) * time.Second)
		return p
	}
	web := func(second int) endpointaccess.Policy {
		return vanished("web", "{endpoints: ['*'], from: [{serviceAccounts: [web]}]}", second)
	}
	jobs := func(second int) endpointaccess.Policy {
		return vanished("jobs", "{endpoints: [api], from: [{serviceAccounts: [default]}]}", second)
	}
	current := policyOf(t, "current", "{endpoints: [api], ports: [80]}")
	for name, c := range map[string]struct {
		policies []endpointaccess.Policy
		port     int
		allowed  string // "*": all
		current  bool
	}{
		"nothing":                    {nil, 80, "*", false},
		"alone":                      {[]endpointaccess.Policy{web(0)}, 80, "demo/web", false},
		"together":                   {[]endpointaccess.Policy{web(0), jobs(0)}, 80, "demo/web demo/job", false},
		"one after the other":        {[]endpointaccess.Policy{web(0), jobs(1)}, 80, "demo/job", false},
		"in the other order":         {[]endpointaccess.Policy{web(1), jobs(0)}, 80, "demo/web", false},
		"beside one that is there":   {[]endpointaccess.Policy{web(0), current, jobs(0)}, 80, "", true},
		"beside one of another port": {[]endpointaccess.Policy{web(0), current}, 81, "demo/web", false},
		"of a name that is there anew": {[]endpointaccess.Policy{vanished("current", "endpoints: ['*']", 0), current},
			80, "", true},
		"that selected another port only": {
			[]endpointaccess.Policy{vanished("x", "{endpoints: [api], ports: [80]}", 0)}, 81, "*", false},
	} {
		rules := endpointaccess.Compile(c.policies, endpointaccess.Allow)
		target := endpointaccess.TargetOf("api.demo", c.port)
		for caller, known := range callers {
			want := c.allowed == "*" || strings.Contains(" "+c.allowed+" ", " "+caller+" ")
			if d := rules.Decide(target, known); d.Allowed != want {
				t.Errorf("%s: %s: %s", name, caller, d)
			}
		}
		if rules.Current(target) != c.current || rules.Restricted(target) != (c.allowed != "*") {
			t.Errorf("%s: current %v, restricted %v", name, rules.Current(target), rules.Restricted(target))
		}
	}
	alone := endpointaccess.Compile([]endpointaccess.Policy{current}, endpointaccess.Allow)
	both := endpointaccess.Compile([]endpointaccess.Policy{web(0), current}, endpointaccess.Allow)
	none := endpointaccess.Compile([]endpointaccess.Policy{web(0)}, endpointaccess.Allow)
	if both.Digest("demo") != alone.Digest("demo") || len(none.Digests()) != 0 || none.Digest("demo") != "" {
		t.Error("policies that have vanished are in a digest")
	}
}

func TestRules_DigestIdentifiesGenerations(t *testing.T) {
	t.Parallel()
	digest := func(policies ...endpointaccess.Policy) string {
		return endpointaccess.Compile(policies, endpointaccess.Allow).Digests()["demo"]
	}
	a, b := policyOf(t, "a", "endpoints: [api]"), policyOf(t, "b", "endpoints: [api]")
	changed, again := a, a
	changed.Generation, again.UID = 2, "uid-2"
	if digest(a, b) != digest(b, a) || digest(a) == "" {
		t.Error("the order matters")
	}
	seen := map[string]bool{digest(a): true}
	for _, other := range []string{digest(a, b), digest(b), digest(changed), digest(again), digest()} {
		if seen[other] {
			t.Errorf("the digest %q is that of others, too", other)
		}
		seen[other] = true
	}
}

func TestSpec_ValidateNamesField(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]string{
		"{}":                          "",
		"{matchLabels: {a: ''}}":      "",
		"{matchLabels: {'a/b/c': x}}": `spec.from[1].podSelector: matchLabels: key "a/b/c" is no name of a label`,
		"{matchLabels: {a: 'x y'}}":   `value "x y" of key "a" is no label's value`,
		"{matchExpressions: [{key: a, operator: In}]}":                  `operator In of key "a" needs values`,
		"{matchExpressions: [{key: a, operator: Exists, values: [x]}]}": `takes no values`,
		"{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}":   `operator "Gt" is none of In`,
	} {
		p := policyOf(t, "p", "{endpoints: [api], from: [{podSelector: {}}, {podSelector: "+selector+"}]}")
		err := p.Spec.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", selector, err)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointaccess_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	propertyRuns  = 1000 // sets of policies
	propertyCalls = 40   // of each
)

// TestRules_DecideAsNaiveEvaluator compares decisions about random policies and calls with those of
// an evaluator that reads the objects of the API one by one, with Kubernetes' own selectors.
func TestRules_DecideAsNaiveEvaluator(t *testing.T) {
	t.Parallel()
	allowed, denied := 0, 0
	for seed := range uint64(propertyRuns) {
		r := &random{rand.New(rand.NewPCG(seed, 1))}
		objects := make([]v1alpha1.EndpointAccess, r.IntN(5))
		for i := range objects {
			objects[i] = r.object(i)
		}
		byDefault := endpointaccess.Allow
		if r.IntN(3) == 0 {
			byDefault = endpointaccess.Deny
		}
		rules := endpointaccess.Compile(policies(t, objects), byDefault)
		for range propertyCalls {
			target, caller := r.target(), r.caller()
			got := rules.Decide(target, caller)
			if want := naive(objects, byDefault, target, caller); got.Allowed != want {
				text, _ := json.Marshal(objects)
				t.Fatalf("seed %d: %+v calls %+v: %s, want %v\n%s", seed, caller, target, got, want, text)
			}
			if got.Allowed {
				allowed++
			} else {
				denied++
			}
		}
	}
	if share := float64(allowed) / float64(allowed+denied); share < 0.1 || share > 0.9 {
		t.Errorf("%.2f of the calls are allowed: the policies are too uniform to compare", share)
	}
}

// naive decides by the definition.
func naive(
	objects []v1alpha1.EndpointAccess, byDefault endpointaccess.Default, t endpointaccess.Target,
	c *endpointaccess.Caller,
) bool {
	selected := false
	for _, o := range objects {
		if o.Namespace != t.Namespace || !naiveSelects(o.Spec, t) {
			continue
		}
		selected = true
		for _, peer := range o.Spec.From {
			if c != nil && naivePeer(o.Namespace, peer, c) {
				return true
			}
		}
	}
	return !selected && byDefault == endpointaccess.Allow
}

func naiveSelects(s v1alpha1.EndpointAccessSpec, t endpointaccess.Target) bool {
	port := len(s.Ports) == 0
	for _, p := range s.Ports {
		port = port || int(p) == t.Port
	}
	for _, e := range s.Endpoints {
		if port && regexp.MustCompile("^"+strings.ReplaceAll(e, "*", ".*")+"$").MatchString(t.Endpoint) {
			return true
		}
	}
	return false
}

func naivePeer(own string, p v1alpha1.EndpointAccessPeer, c *endpointaccess.Caller) bool {
	account := len(p.ServiceAccounts) == 0
	for _, name := range p.ServiceAccounts {
		account = account || name == c.ServiceAccount
	}
	inNamespace := c.Namespace == own
	if p.NamespaceSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(p.NamespaceSelector)
		inNamespace = err == nil && s.Matches(labels.Set(c.NamespaceLabels.(endpointaccess.LabelMap)))
	}
	pod := true
	if p.PodSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(p.PodSelector)
		pod = err == nil && s.Matches(labels.Set(c.PodLabels.(endpointaccess.LabelMap)))
	}
	return account && inNamespace && pod
}

// policies converts objects through their JSON.
func policies(t *testing.T, objects []v1alpha1.EndpointAccess) []endpointaccess.Policy {
	t.Helper()
	all := make([]endpointaccess.Policy, len(objects))
	for i, o := range objects {
		all[i] = endpointaccess.Policy{Namespace: o.Namespace, Name: o.Name}
		raw, err := json.Marshal(o.Spec)
		if err == nil {
			err = json.Unmarshal(raw, &all[i].Spec)
		}
		must.Succeed(t, err)
	}
	return all
}

// random makes objects and calls from few names, so that they meet often.
type random struct{ *rand.Rand }

func (r *random) oneOf(of ...string) string { return of[r.IntN(len(of))] }

func (r *random) some(of ...string) (chosen []string) {
	for _, o := range of {
		if r.IntN(2) == 0 {
			chosen = append(chosen, o)
		}
	}
	return chosen
}

func (r *random) object(i int) v1alpha1.EndpointAccess {
	o := v1alpha1.EndpointAccess{}
	o.Namespace, o.Name = r.oneOf("a", "a", "b"), string(rune('p'+i))
	o.Spec.Endpoints = append(r.some("api", "api-2", "*-2", "a*i", "*"), "web")
	if r.IntN(3) == 0 {
		o.Spec.Ports = []int32{80, 443}[:1+r.IntN(2)]
	}
	for range r.IntN(4) {
		o.Spec.From = append(o.Spec.From, r.peer())
	}
	return o
}

func (r *random) peer() (p v1alpha1.EndpointAccessPeer) {
	if r.IntN(2) == 0 {
		p.NamespaceSelector = r.selector()
	}
	if r.IntN(2) == 0 {
		p.PodSelector = r.selector()
	}
	if r.IntN(3) == 0 {
		p.ServiceAccounts = append(r.some("default", "web"), "other")
	}
	return p
}

func (r *random) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if r.IntN(2) == 0 {
		s.MatchLabels = r.labels()
	}
	for range r.IntN(3) {
		q := metav1.LabelSelectorRequirement{Key: r.oneOf("x", "y", "example.com/z", "x", "y", "a/b/c"),
			Operator: metav1.LabelSelectorOperator(
				r.oneOf("In", "NotIn", "Exists", "DoesNotExist", "NotIn", "In", "?"))}
		if needs := q.Operator == "In" || q.Operator == "NotIn"; needs != (r.IntN(20) == 0) {
			q.Values = append(r.some("1", "2", "", "no value"), "1")
		}
		s.MatchExpressions = append(s.MatchExpressions, q)
	}
	return s
}

func (r *random) labels() map[string]string {
	set := map[string]string{}
	for _, key := range r.some("x", "y", "example.com/z") {
		set[key] = r.oneOf("1", "2", "")
	}
	return set
}

func (r *random) target() endpointaccess.Target {
	return endpointaccess.Target{Namespace: r.oneOf("a", "b", "c"), Endpoint: r.oneOf("api", "api-2", "web", "x"),
		Port: []int{80, 443, 5432}[r.IntN(3)]}
}

func (r *random) caller() *endpointaccess.Caller {
	if r.IntN(8) == 0 {
		return nil
	}
	return &endpointaccess.Caller{Namespace: r.oneOf("a", "b"), ServiceAccount: r.oneOf("default", "web"),
		NamespaceLabels: endpointaccess.LabelMap(r.labels()), PodLabels: endpointaccess.LabelMap(r.labels())}
}

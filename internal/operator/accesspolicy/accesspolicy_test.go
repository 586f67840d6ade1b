// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accesspolicy_test

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestOf_KeepsEveryField compares the JSON of the object's spec with that of the policy's.
func TestOf_KeepsEveryField(t *testing.T) {
	t.Parallel()
	var o v1alpha1.EndpointAccess
	must.Succeed(t, yaml.UnmarshalStrict([]byte(`
metadata: {namespace: demo, name: api, uid: u-1, generation: 3}
spec:
  endpoints: [api, 'a*']
  ports: [80, 443]
  from:
    - podSelector: {}
    - namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d, e]}]}
      podSelector: {matchExpressions: [{key: f, operator: Exists}]}
      serviceAccounts: [web]
`), &o))
	p := accesspolicy.Of(&o)
	if p.Namespace != "demo" || p.Name != "api" || p.UID != "u-1" || p.Generation != 3 {
		t.Errorf("the policy is named %+v", p)
	}
	want, err := json.Marshal(o.Spec)
	must.Succeed(t, err)
	if got, err := json.Marshal(p.Spec); err != nil || string(got) != string(want) {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
}

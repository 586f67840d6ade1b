// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/selector"
)

// TestSet_AdmitsLabels checks that endpoints get the labels that the installation admits, older
// ones first, never those of the operator.
func TestSet_AdmitsLabels(t *testing.T) {
	t.Parallel()
	all, err := selector.Compile("")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(id, labels string, age time.Duration) account.Endpoint {
		u, _ := account.ParseEndpointURL("http://api.demo")
		e := account.NewEndpoint(account.BindingKubernetes, u)
		e.ID, e.ServiceLabels, e.CreatedAt = id, labels, time.Unix(1e9, 0).Add(-age)
		return e
	}
	for _, tc := range []struct {
		name string
		keys []string
		want map[string]string
	}{
		{"none", nil, nil},
		{"named", []string{"team"}, map[string]string{"team": "old"}},
		{"beginning", []string{"example.com/*"}, map[string]string{"example.com/a": "1"}},
		{"all without a domain", []string{"*"}, map[string]string{"team": "old", "tier": "api"}},
		{"no domain by half", []string{"t*", "example*"}, map[string]string{"team": "old", "tier": "api"}},
	} {
		s := endpointsync.NewSet(endpointsync.SetOptions{Selector: all, Labels: tc.keys, Clock: clock.RealClock{}})
		s.Replace(endpointsync.Snapshot{Endpoints: []account.Endpoint{
			endpoint("ep-2", "team=new,tier=api", 0),
			endpoint("ep-1", "team=old,example.com/a=1,bindings.fairlead.dev/place=x,app.kubernetes.io/managed-by=x",
				time.Hour)}}, time.Now())
		if d := cmp.Diff(tc.want, s.Desired("api.demo").ServiceLabels); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
		changed := endpoint("ep-1", "team=newer", time.Hour)
		change := s.Apply(account.EndpointEvent{Type: account.Modified, Endpoint: &changed,
			ResourceVersion: account.ResourceVersion{Epoch: 1, Seq: 9}})
		if len(change.Hostnames) != 1 {
			t.Errorf("%s: another label changes %v", tc.name, change.Hostnames)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKinds_MapsKindsAndLists(t *testing.T) {
	t.Parallel()
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	m := Kinds{
		Namespaced: []schema.GroupVersionKind{gv.WithKind("NetworkPolicy"), gv.WithKind("EndpointAccess")},
		Cluster:    []schema.GroupVersionKind{gv.WithKind("ClusterProperty")},
	}.Mapper()
	for kind, want := range map[string]string{
		"NetworkPolicy": "networkpolicies", "NetworkPolicyList": "networkpolicies",
		"EndpointAccess": "endpointaccesses", "ClusterPropertyList": "clusterproperties",
	} {
		got, err := m.RESTMapping(gv.WithKind(kind).GroupKind(), gv.Version)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if root := got.Scope == meta.RESTScopeRoot; got.Resource.Resource != want ||
			root != (kind == "ClusterPropertyList") {
			t.Errorf("%s: got %v, root %v, want %s", kind, got.Resource, root, want)
		}
	}
}

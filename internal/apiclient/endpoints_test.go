// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store/storetest"
)

// TestClient_WritesEndpoints checks that the API takes each field, and that a change leaves what it
// does not name.
func TestClient_WritesEndpoints(t *testing.T) {
	t.Parallel()
	_, c := newAPIClientOf(t, []account.Scope{account.ScopeExporter})
	owner := account.Owner{Cluster: "c-1", Kind: account.KindCloudEndpoint, Namespace: "team-a", Name: "shop",
		UID: "u-1"}
	made, err := c.CreateEndpoint(t.Context(), account.Endpoint{URL: "http://shop.internal",
		Bindings: []string{account.BindingInternal}, Name: "n", Description: "d", Metadata: "m", PoolingEnabled: true,
		Owner: &owner})
	storetest.Must(t, err)
	type fields struct {
		url, binding, name, description, metadata string
		pools                                     bool
		owner                                     account.Owner
	}
	of := func(e *account.Endpoint) fields {
		return fields{e.URL, e.Bindings[0], e.Name, e.Description, e.Metadata, e.PoolingEnabled, *e.Owner}
	}
	want := fields{"http://shop.internal", "internal", "n", "d", "m", true, owner}
	storetest.Equal(t, "created", of(made), want)

	_, err = c.CreateEndpoint(t.Context(), account.Endpoint{URL: "http://x.internal"})
	storetest.Equal(t, "code of a refusal", account.CodeOf(err), account.CodeInvalid)

	text := "changed"
	changed, err := c.PatchEndpoint(t.Context(), made.ID, account.EndpointPatch{Description: &text}, nil)
	storetest.Must(t, err)
	want.description = text
	storetest.Equal(t, "changed", of(changed), want)
	want.owner.UID = "u-2"
	changed, err = c.PatchEndpoint(t.Context(), made.ID, account.EndpointPatch{}, &want.owner)
	storetest.Must(t, err)
	storetest.Equal(t, "changed owner", of(changed), want)

	for cluster, n := range map[string]int{"c-1": 1, "": 1} {
		list, err := c.ListEndpoints(t.Context(), account.EndpointFilter{OwnerCluster: cluster})
		storetest.Must(t, err)
		storetest.Equal(t, "endpoints of cluster "+cluster, len(list.Endpoints), n)
	}
	storetest.Must(t, c.DeleteEndpoint(t.Context(), made.ID))
	storetest.Equal(t, "code of a second deletion", account.CodeOf(c.DeleteEndpoint(t.Context(), made.ID)),
		account.CodeNotFound)
}

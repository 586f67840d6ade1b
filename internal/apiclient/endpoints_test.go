// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient_test

import (
	"reflect"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestClient_WritesEndpoints checks that the API takes each field, and that a change leaves what it
// does not name.
func TestClient_WritesEndpoints(t *testing.T) {
	t.Parallel()
	_, c := newAPIClientOf(t, []account.Scope{account.ScopeExporter})
	owner := account.Owner{Cluster: "c-1", Kind: account.KindCloudEndpoint, Namespace: "team-a", Name: "shop",
		UID: "u-1"}
	made, err := c.CreateEndpoint(t.Context(), account.Endpoint{URL: "http://shop.internal",
		Bindings: []string{account.BindingInternal},
		EndpointSettings: account.EndpointSettings{Name: "n", Description: "d", Metadata: "m",
			PoolingEnabled: true}, Owner: &owner})
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

// TestClient_WritesServiceExports checks that the API takes and answers an export as it is, and
// that the client follows those of the account.
func TestClient_WritesServiceExports(t *testing.T) {
	t.Parallel()
	_, c := newAPIClientOf(t, []account.Scope{account.ScopeExporter})
	exports := account.EndpointFilter{Bindings: []string{account.BindingClusterset}, Type: account.TypeCloud}
	list, err := c.ListEndpoints(t.Context(), exports)
	storetest.Must(t, err)
	w, err := c.WatchEndpoints(t.Context(), exports, list.Version)
	storetest.Must(t, err)
	defer w.Close()
	next := func() *account.ServiceExport {
		e, err := w.Next()
		storetest.Must(t, err)
		return e.Endpoint.ServiceExport
	}
	want := accounttest.ServiceExport()
	made, err := c.CreateEndpoint(t.Context(), account.Endpoint{URL: account.ServiceExportURL("hello", "demo", "a").
		String(), Bindings: []string{account.BindingClusterset}, Owner: accounttest.ExportOwner("demo", "hello"),
		ServiceExport: want})
	storetest.Must(t, err)
	list, err = c.ListEndpoints(t.Context(), exports)
	storetest.Must(t, err)
	for where, got := range map[string]*account.ServiceExport{"made": made.ServiceExport, "watched": next(),
		"listed": list.Endpoints[0].ServiceExport} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", where, got, want)
		}
	}
	owner := *made.Owner
	owner.UID = "u-2"
	changed, err := c.PatchEndpoint(t.Context(), made.ID, account.EndpointPatch{}, &owner)
	storetest.Must(t, err)
	if !reflect.DeepEqual(changed.ServiceExport, want) {
		t.Errorf("a change of something else: %+v", changed.ServiceExport)
	}
	want = &account.ServiceExport{Type: account.ExportHeadless, SessionAffinity: "None"}
	_, err = c.PatchEndpoint(t.Context(), made.ID, account.EndpointPatch{ServiceExport: want}, nil)
	storetest.Must(t, err)
	next() // the change of the owner
	if got := next(); !reflect.DeepEqual(got, want.Normal()) {
		t.Errorf("changed: %+v, want %+v", got, want)
	}
}

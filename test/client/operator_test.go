// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ngrok/ngrok-api-go/v7"
	"github.com/ngrok/ngrok-api-go/v7/api_keys"
	"github.com/ngrok/ngrok-api-go/v7/kubernetes_operators"
)

// TestClient_RegistersPublicOperator makes the calls that ngrok-operator 0.22 makes, in its order
// and with its values: verify the key, look for itself, register, update, read, poll.
func TestClient_RegistersPublicOperator(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	a.makeEndpoints("http://shop.demo", "tcp://db.prod:5432")
	key, err := server.admin(a.ctx, "api-key", "create", "--account", a.name, "--scope", "operator")
	if err != nil {
		t.Fatal(err)
	}
	config := a.configWith(key)
	if own := all(a, api_keys.NewClient(config).List(&ngrok.Paging{Limit: text("1")})); len(own) != 1 {
		t.Errorf("keys that the key sees: %v, want itself", own)
	}
	operators := kubernetes_operators.NewClient(config)
	if found := all(a, operators.List(&ngrok.Paging{})); len(found) != 0 {
		t.Errorf("operators before registration: %v", found)
	}
	features := []string{"ingress", "gateway", "bindings"}
	const name, csr = "ngrok-operator", "-----BEGIN CERTIFICATE REQUEST-----"
	made, err := operators.Create(a.ctx, &ngrok.KubernetesOperatorCreate{
		Metadata: `{"namespace.uid":"6c0f","owned-by":"ngrok-operator"}`, Description: "mine",
		EnabledFeatures: features,
		Deployment:      ngrok.KubernetesOperatorDeployment{Name: name, Namespace: name, Version: "0.22.0"},
		Binding:         &ngrok.KubernetesOperatorBindingCreate{EndpointSelectors: []string{"true"}, CSR: csr},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(made.EnabledFeatures, features) || made.Binding == nil || made.Binding.Cert.Cert != "" {
		t.Errorf("registered %+v, want all features, and a binding without a certificate", made)
	}
	for _, c := range []struct{ selector, want string }{
		{"true", "tcp db.prod:5432, http shop.demo:80"},
		{`endpoint.url.contains("shop")`, "http shop.demo:80"},
		{"", "tcp db.prod:5432, http shop.demo:80"},
	} {
		_, err := operators.Update(a.ctx, &ngrok.KubernetesOperatorUpdate{
			ID: made.ID, Description: text("mine"), Metadata: &made.Metadata, EnabledFeatures: features,
			Region:     text(""),
			Deployment: &ngrok.KubernetesOperatorDeploymentUpdate{Name: text(name), Version: text("0.22.0")},
			Binding:    &ngrok.KubernetesOperatorBindingUpdate{EndpointSelectors: []string{c.selector}, CSR: text(csr)},
		})
		if err != nil {
			t.Fatalf("%q: %v", c.selector, err)
		}
		if got := a.boundEndpoints(operators, made.ID); got != c.want {
			t.Errorf("%q binds %s, want %s", c.selector, got, c.want)
		}
	}
	_, err = operators.Update(a.ctx, &ngrok.KubernetesOperatorUpdate{ID: made.ID,
		Binding: &ngrok.KubernetesOperatorBindingUpdate{EndpointSelectors: []string{"all()"}}})
	wantError(t, "a selector that does not compile", err, http.StatusBadRequest)
	if !strings.Contains(fmt.Sprint(err), "binding.endpoint_selectors[0]") {
		t.Errorf("the refusal does not name the field: %v", err)
	}
}

// boundEndpoints returns protocol and address of each endpoint that the operator binds.
func (a *tenant) boundEndpoints(operators *kubernetes_operators.Client, operatorID string) string {
	a.Helper()
	var bound []string
	for _, e := range all(a, operators.GetBoundEndpoints(operatorID, &ngrok.Paging{})) {
		if !strings.HasPrefix(e.PublicURL, e.Proto+"://") {
			a.Errorf("public URL %s of protocol %s", e.PublicURL, e.Proto)
		}
		bound = append(bound, e.Proto+" "+e.Hostport)
	}
	return strings.Join(bound, ", ")
}

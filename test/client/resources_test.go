// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/ngrok/ngrok-api-go/v7"
	"github.com/ngrok/ngrok-api-go/v7/api_keys"
	"github.com/ngrok/ngrok-api-go/v7/application_sessions"
	"github.com/ngrok/ngrok-api-go/v7/application_users"
	"github.com/ngrok/ngrok-api-go/v7/backends/failover"
	"github.com/ngrok/ngrok-api-go/v7/backends/http_response"
	"github.com/ngrok/ngrok-api-go/v7/backends/static_address"
	"github.com/ngrok/ngrok-api-go/v7/backends/tunnel_group"
	"github.com/ngrok/ngrok-api-go/v7/backends/weighted"
	"github.com/ngrok/ngrok-api-go/v7/credentials"
	"github.com/ngrok/ngrok-api-go/v7/endpoints"
	"github.com/ngrok/ngrok-api-go/v7/kubernetes_operators"
)

var text = ngrok.String

func TestClient_APIKeys(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	client := api_keys.NewClient(a.config)
	resource[ngrok.APIKeyCreate, ngrok.APIKeyUpdate, ngrok.APIKey]{
		path: "/api_keys", key: "keys", client: client,
		create: func(n int) ngrok.APIKeyCreate {
			return ngrok.APIKeyCreate{Description: fmt.Sprint("key ", n), Metadata: `{"a":1}`, OwnerID: text("usr_1")}
		},
		update:  ngrok.APIKeyUpdate{Description: text("changed")},
		ignored: []string{"owner_id"}, absent: []string{"owner_id"},
	}.live(t, a)

	made, err := client.Create(a.ctx, nil)
	if err != nil || made.Token == nil {
		t.Fatalf("create: %v, %v; want a token", made, err)
	}
	other := api_keys.NewClient(a.configWith(*made.Token))
	if read, err := other.Get(a.ctx, made.ID); err != nil || read.Token != nil {
		t.Errorf("get with the new key: %v, %v; want it without the token", read, err)
	}
	if err := client.Delete(a.ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	_, err = other.Get(a.ctx, made.ID)
	wantError(t, "get with a deleted key", err, http.StatusUnauthorized)
}

func TestClient_Credentials(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	resource[ngrok.CredentialCreate, ngrok.CredentialUpdate, ngrok.Credential]{
		path: "/credentials", key: "credentials", client: credentials.NewClient(a.config),
		create: func(n int) ngrok.CredentialCreate {
			return ngrok.CredentialCreate{Description: fmt.Sprint("token ", n), Metadata: "m",
				ACL: []string{"bind:http://*.demo", "bind:app=api"}, OwnerID: text("usr_1")}
		},
		update:  ngrok.CredentialUpdate{Metadata: text(""), ACL: []string{"bind:http://shop.demo"}},
		ignored: []string{"owner_id"}, absent: []string{"owner_id"},
	}.live(t, a)
}

// TestClient_Identities lists the identities of an account without logins.
func TestClient_Identities(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	users, sessions := application_users.NewClient(a.config), application_sessions.NewClient(a.config)
	for it := users.List(nil); it.Next(a.ctx) || it.Err() != nil; {
		t.Fatalf("a user: %v, %v", it.Item(), it.Err())
	}
	for it := sessions.List(&ngrok.Paging{Limit: text("10")}); it.Next(a.ctx) || it.Err() != nil; {
		t.Fatalf("a session: %v, %v", it.Item(), it.Err())
	}
	const user, session = "au-00000000000000000000000000", "as-00000000000000000000000000"
	_, err := users.Get(a.ctx, user)
	wantError(t, "get a user", err, http.StatusNotFound)
	_, err = sessions.Get(a.ctx, session)
	wantError(t, "get a session", err, http.StatusNotFound)
	wantError(t, "delete a user", users.Delete(a.ctx, user), http.StatusNotFound)
	wantError(t, "delete a session", sessions.Delete(a.ctx, session), http.StatusNotFound)
	for path, key := range map[string]string{"/app/users": "application_users",
		"/app/sessions": "application_sessions"} {
		if list, ok := a.raw(path)[key].([]any); !ok || len(list) > 0 {
			t.Errorf("%s has %s %v", path, key, list)
		}
	}
}

// endpointAbsent are the fields of the client's endpoints that have no meaning here.
var endpointAbsent = []string{"domain", "edge", "tcp_addr", "tunnel"}

func TestClient_Endpoints(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	policy := "on_http_request:\n- actions:\n  - type: deny\n"
	resource[ngrok.EndpointCreate, ngrok.EndpointUpdate, ngrok.Endpoint]{
		path: "/endpoints", key: "endpoints", client: endpoints.NewClient(a.config),
		create: func(n int) ngrok.EndpointCreate {
			return ngrok.EndpointCreate{URL: fmt.Sprintf("http://shop-%d.demo", n), Type: "cloud",
				Bindings: []string{"kubernetes"}, TrafficPolicy: policy,
				Description: text("the shop"), Metadata: text("m"), PoolingEnabled: ngrok.Bool(false)}
		},
		update: ngrok.EndpointUpdate{Url: text("http://shop-1.demo"), Bindings: []string{"kubernetes"},
			Description:   text("closed"),
			TrafficPolicy: text(policy + "    config: {status_code: 410}\n"), PoolingEnabled: ngrok.Bool(true)},
		absent: endpointAbsent, unlisted: "traffic_policy",
	}.live(t, a)
}

func TestClient_FailoverBackend(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	first, second := a.response("first"), a.response("second")
	resource[ngrok.FailoverBackendCreate, ngrok.FailoverBackendUpdate, ngrok.FailoverBackend]{
		path: "/backends/failover", key: "backends", client: failover.NewClient(a.config),
		create: func(n int) ngrok.FailoverBackendCreate {
			return ngrok.FailoverBackendCreate{Description: fmt.Sprint(n), Metadata: "m",
				Backends: []string{first, second}}
		},
		update: ngrok.FailoverBackendUpdate{Metadata: text("changed"), Backends: []string{second, first}},
	}.live(t, a)
}

func TestClient_WeightedBackend(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	first, second := a.response("first"), a.response("second")
	resource[ngrok.WeightedBackendCreate, ngrok.WeightedBackendUpdate, ngrok.WeightedBackend]{
		path: "/backends/weighted", key: "backends", client: weighted.NewClient(a.config),
		create: func(n int) ngrok.WeightedBackendCreate {
			return ngrok.WeightedBackendCreate{Description: fmt.Sprint(n), Metadata: "m",
				Backends: map[string]int64{first: 10_000, second: 0}}
		},
		update: ngrok.WeightedBackendUpdate{Description: text(""), Backends: map[string]int64{first: 1, second: 2}},
	}.live(t, a)
}

func TestClient_TunnelGroupBackend(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	resource[ngrok.TunnelGroupBackendCreate, ngrok.TunnelGroupBackendUpdate, ngrok.TunnelGroupBackend]{
		path: "/backends/tunnel_group", key: "backends", client: tunnel_group.NewClient(a.config),
		create: func(n int) ngrok.TunnelGroupBackendCreate {
			return ngrok.TunnelGroupBackendCreate{Description: fmt.Sprint(n), Metadata: "m",
				Labels: map[string]string{"app": "api", "n": fmt.Sprint(n)}}
		},
		update: ngrok.TunnelGroupBackendUpdate{Metadata: text("changed"),
			Labels: map[string]string{"app": "web", "n": "1"}},
	}.live(t, a)
}

func TestClient_StaticBackend(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	resource[ngrok.StaticBackendCreate, ngrok.StaticBackendUpdate, ngrok.StaticBackend]{
		path: "/backends/static", key: "backends", client: static_address.NewClient(a.config),
		create: func(n int) ngrok.StaticBackendCreate {
			return ngrok.StaticBackendCreate{Description: fmt.Sprint(n), Metadata: "m",
				Address: "api.example.com:443",
				TLS:     ngrok.StaticBackendTLS{Enabled: true}}
		},
		// with an empty tls, which changes nothing
		update: ngrok.StaticBackendUpdate{Address: "api.example.org:443"},
	}.live(t, a)
}

func TestClient_HTTPResponseBackend(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	resource[ngrok.HTTPResponseBackendCreate, ngrok.HTTPResponseBackendUpdate, ngrok.HTTPResponseBackend]{
		path: "/backends/http_response", key: "backends", client: http_response.NewClient(a.config),
		create: func(n int) ngrok.HTTPResponseBackendCreate {
			return ngrok.HTTPResponseBackendCreate{Description: fmt.Sprint(n), Metadata: "m", Body: "resting",
				Headers: map[string]string{"retry-after": "60"}, StatusCode: status(503)}
		},
		update: ngrok.HTTPResponseBackendUpdate{Body: text(""), Headers: map[string]string{"x-gone": "yes"},
			StatusCode: status(410)},
	}.live(t, a)
}

func status(code int32) *int32 { return &code }

// response makes a backend that answers with the text.
func (a *tenant) response(body string) string {
	a.Helper()
	made, err := http_response.NewClient(a.config).Create(a.ctx, &ngrok.HTTPResponseBackendCreate{Body: body})
	if err != nil {
		a.Fatal(err)
	}
	return made.ID
}

func TestClient_Operators(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	client := kubernetes_operators.NewClient(a.config)
	binding := &ngrok.KubernetesOperatorBindingCreate{EndpointSelectors: []string{"ep.hostname == 'shop.demo'"},
		CSR: "a request", IngressEndpoint: text("kubernetes-binding-ingress.test:443")}
	resource[ngrok.KubernetesOperatorCreate, ngrok.KubernetesOperatorUpdate, ngrok.KubernetesOperator]{
		path: "/kubernetes_operators", key: "operators", client: client,
		create: func(n int) ngrok.KubernetesOperatorCreate {
			return ngrok.KubernetesOperatorCreate{Description: fmt.Sprint(n), Metadata: "m",
				EnabledFeatures: []string{"bindings"}, Region: "global", Binding: binding,
				Deployment: ngrok.KubernetesOperatorDeployment{Name: "operator", Namespace: "system", Version: "0.1.0",
					ClusterName: "demo"}}
		},
		update: ngrok.KubernetesOperatorUpdate{Region: text("eu"),
			Deployment: &ngrok.KubernetesOperatorDeploymentUpdate{Name: text("operator"), Version: text("0.2.0")},
			Binding: &ngrok.KubernetesOperatorBindingUpdate{CSR: text("another"),
				EndpointSelectors: []string{"true"}}},
		ignored: []string{"binding.csr", "binding.cert"},
	}.live(t, a)

	o, err := client.Create(a.ctx, &ngrok.KubernetesOperatorCreate{EnabledFeatures: []string{"bindings"},
		Binding: binding})
	if err != nil {
		t.Fatal(err)
	}
	if bound := all(a, client.GetBoundEndpoints(o.ID, nil)); len(bound) != 0 {
		t.Errorf("bound endpoints %v, want none", bound)
	}
	a.makeEndpoints("http://shop.demo", "http://other.demo", "tcp://shop.demo:5432")
	var urls []string
	for _, e := range all(a, client.GetBoundEndpoints(o.ID, &ngrok.Paging{Limit: text("1")})) {
		urls = append(urls, e.URL)
	}
	if fmt.Sprint(urls) != "[tcp://shop.demo:5432 http://shop.demo]" {
		t.Errorf("bound endpoints %v, want those of the selector, newest first", urls)
	}
}

// makeEndpoints makes kubernetes-bound cloud endpoints.
func (a *tenant) makeEndpoints(urls ...string) {
	a.Helper()
	for _, url := range urls {
		_, err := endpoints.NewClient(a.config).Create(a.ctx,
			&ngrok.EndpointCreate{URL: url, Type: "cloud", Bindings: []string{"kubernetes"}})
		if err != nil {
			a.Fatal(err)
		}
	}
}

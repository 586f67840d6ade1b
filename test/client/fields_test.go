// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ngrok/ngrok-api-go/v7"
)

// offered are the client's packages whose resources the service has.
var offered = []string{"api_keys", "application_sessions", "application_users", "backends/failover",
	"backends/http_response", "backends/static_address", "backends/tunnel_group", "backends/weighted",
	"credentials", "endpoints", "kubernetes_operators", "tunnel_sessions", "tunnels"}

// The texts of every request.
var description, metadata = text("a description"), text("metadata")

// request is a body that the client can send, with every field that it can have.
type request struct {
	path     string
	required []string // what goes with every other field of a creation
	create   any
	update   func(id string) any
	made     reflect.Type // of the answers
}

// requests returns those of every resource that can be made through the API. child and other are ids
// of backends.
func requests(child, other string) []request {
	return slices.Concat(accountRequests(), groupRequests(child, other), leafRequests(), operatorRequests())
}

// accountRequests returns those of API keys, credentials and endpoints.
func accountRequests() []request {
	return []request{
		{path: "/api_keys", made: reflect.TypeFor[ngrok.APIKey](),
			create: ngrok.APIKeyCreate{Description: *description, Metadata: *metadata, OwnerID: text("usr_1")},
			update: func(id string) any {
				return ngrok.APIKeyUpdate{ID: id, Description: description, Metadata: metadata}
			}},
		{path: "/credentials", made: reflect.TypeFor[ngrok.Credential](),
			create: ngrok.CredentialCreate{Description: *description, Metadata: *metadata,
				ACL:     []string{"bind:*.example.com"},
				OwnerID: text("usr_1")},
			update: func(id string) any {
				return ngrok.CredentialUpdate{ID: id, Description: description, Metadata: metadata,
					ACL: []string{"bind:foo=bar"}}
			}},
		{path: "/endpoints", made: reflect.TypeFor[ngrok.Endpoint](), required: []string{"url"},
			create: ngrok.EndpointCreate{URL: "http://shop.demo", Type: "cloud",
				TrafficPolicy: `{"on_http_request":[]}`,
				Description:   description, Metadata: metadata,
				Bindings: []string{"kubernetes"}, PoolingEnabled: ngrok.Bool(true)},
			update: func(id string) any {
				return ngrok.EndpointUpdate{ID: id, Url: text("http://shop.demo"),
					TrafficPolicy: text("on_http_request: []"),
					Description:   description, Metadata: metadata,
					Bindings: []string{"kubernetes"}, PoolingEnabled: ngrok.Bool(true)}
			}},
	}
}

// groupRequests returns those of the backends that choose among other backends.
func groupRequests(child, other string) []request {
	return []request{
		{path: "/backends/failover", made: reflect.TypeFor[ngrok.FailoverBackend](), required: []string{"backends"},
			create: ngrok.FailoverBackendCreate{Description: *description, Metadata: *metadata,
				Backends: []string{child}},
			update: func(id string) any {
				return ngrok.FailoverBackendUpdate{ID: id, Description: description, Metadata: metadata,
					Backends: []string{other}}
			}},
		{path: "/backends/weighted", made: reflect.TypeFor[ngrok.WeightedBackend](), required: []string{"backends"},
			create: ngrok.WeightedBackendCreate{Description: *description, Metadata: *metadata,
				Backends: map[string]int64{child: 1}},
			update: func(id string) any {
				return ngrok.WeightedBackendUpdate{ID: id, Description: description, Metadata: metadata,
					Backends: map[string]int64{other: 2}}
			}},
	}
}

// leafRequests returns those of the backends that have no children.
func leafRequests() []request {
	return []request{
		{path: "/backends/tunnel_group", made: reflect.TypeFor[ngrok.TunnelGroupBackend](),
			required: []string{"labels"},
			create: ngrok.TunnelGroupBackendCreate{Description: *description, Metadata: *metadata,
				Labels: map[string]string{"app": "api"}},
			update: func(id string) any {
				return ngrok.TunnelGroupBackendUpdate{ID: id, Description: description, Metadata: metadata,
					Labels: map[string]string{"app": "web"}}
			}},
		{path: "/backends/static", made: reflect.TypeFor[ngrok.StaticBackend](), required: []string{"address"},
			create: ngrok.StaticBackendCreate{Description: *description, Metadata: *metadata, Address: "example.com:80",
				TLS: ngrok.StaticBackendTLS{Enabled: true}},
			update: func(id string) any {
				return ngrok.StaticBackendUpdate{ID: id, Description: description, Metadata: metadata,
					Address: "example.org:80",
					TLS:     ngrok.StaticBackendTLS{Enabled: true}}
			}},
		{path: "/backends/http_response", made: reflect.TypeFor[ngrok.HTTPResponseBackend](),
			create: ngrok.HTTPResponseBackendCreate{Description: *description, Metadata: *metadata, Body: "body",
				Headers: map[string]string{"x-a": "b"}, StatusCode: status(404)},
			update: func(id string) any {
				return ngrok.HTTPResponseBackendUpdate{ID: id, Description: description, Metadata: metadata,
					Body:    text("b"),
					Headers: map[string]string{"x-b": "c"}, StatusCode: status(410)}
			}},
	}
}

func operatorRequests() []request {
	return []request{
		{path: "/kubernetes_operators", made: reflect.TypeFor[ngrok.KubernetesOperator](),
			create: ngrok.KubernetesOperatorCreate{Description: *description, Metadata: *metadata,
				EnabledFeatures: []string{"bindings"}, Region: "global",
				Deployment: ngrok.KubernetesOperatorDeployment{Name: "operator", Namespace: "system", Version: "1.0.0",
					ClusterName: "demo"},
				Binding: &ngrok.KubernetesOperatorBindingCreate{EndpointSelectors: []string{"true"}, CSR: "csr",
					IngressEndpoint: text("example.com:443")}},
			update: func(id string) any {
				return ngrok.KubernetesOperatorUpdate{ID: id, Description: description, Metadata: metadata,
					EnabledFeatures: []string{"bindings"}, Region: text("eu"),
					Deployment: &ngrok.KubernetesOperatorDeploymentUpdate{Name: text("o"), Version: text("1.0.1")},
					Binding: &ngrok.KubernetesOperatorBindingUpdate{EndpointSelectors: []string{"true"},
						CSR:             text("csr"),
						IngressEndpoint: text("example.com:443")}}
			}},
	}
}

// TestClient_AcceptsEveryField sends each field that the client's types have, one at a time and all
// of them at once.
func TestClient_AcceptsEveryField(t *testing.T) {
	t.Parallel()
	var sent []string // types
	for _, r := range requests("", "") {
		sent = append(sent, reflect.TypeOf(r.create).Name(), reflect.TypeOf(r.update("")).Name())
	}
	if slices.Sort(sent); !slices.Equal(sent, argumentTypes(t)) {
		t.Errorf("sent are\n%v, the client's types are\n%v", sent, argumentTypes(t))
	}
	for i := range requests("", "") {
		t.Run(strings.ReplaceAll(strings.Trim(requests("", "")[i].path, "/"), "/", "-"), func(t *testing.T) {
			t.Parallel()
			a := newTenant(t)
			r := requests(a.response("first"), a.response("second"))[i]
			a.sendEach(t, http.MethodPost, r.path, r, r.create)
			base := ngrok.NewBaseClient(a.config)
			var made ngrok.Ref
			if err := base.Do(a.ctx, http.MethodPost, &url.URL{Path: r.path}, r.create, &made); err != nil {
				t.Fatal(err)
			}
			a.sendEach(t, http.MethodPatch, r.path+"/"+made.ID, r, r.update(made.ID))
		})
	}
}

// sendEach sends each field of the body, those that are required with every creation, and all of
// them at once.
func (a *tenant) sendEach(t *testing.T, method, path string, r request, body any) {
	t.Helper()
	full := fieldsOf(t, body)
	for _, missing := range missingFields("", reflect.TypeOf(body), full) {
		t.Errorf("%T: the example has no %s", body, missing)
	}
	bodies := map[string]map[string]any{"all": full}
	for name, value := range full {
		if inner, ok := value.(map[string]any); ok {
			for field, v := range inner {
				bodies[name+"."+field] = map[string]any{name: map[string]any{field: v}}
			}
		} else {
			bodies[name] = map[string]any{name: value}
		}
	}
	base := ngrok.NewBaseClient(a.config)
	for what, fields := range bodies {
		if method == http.MethodPost {
			for _, name := range r.required {
				fields[name] = full[name]
			}
		}
		var answer map[string]any
		if err := base.Do(a.ctx, method, &url.URL{Path: path}, fields, &answer); err != nil {
			t.Errorf("%s %s with %s of %T: %v", method, path, what, body, err)
			continue
		}
		for _, name := range nulls("", r.made, answer) {
			t.Errorf("%s %s with %s: %s of the answer is null, and has no null in %s", method, path, what, name, r.made)
		}
		if method == http.MethodPost {
			if err := base.Do(a.ctx, http.MethodDelete, &url.URL{Path: path + "/" + fmt.Sprint(answer["id"])}, nil,
				nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// nulls are the fields of an answer that are null, where the client's type has a text, a number, a
// list, a map or an object that is always there.
func nulls(where string, of reflect.Type, answer map[string]any) (found []string) {
	for name, f := range jsonFields(of) {
		value, there := answer[name]
		inner, optional := f.Type, f.Type.Kind() == reflect.Pointer
		if optional {
			inner = inner.Elem()
		}
		switch answered, isObject := value.(map[string]any); {
		case there && value == nil && !optional && where+name != "binding.cert": // there is never one
			found = append(found, where+name)
		case isObject && inner.Kind() == reflect.Struct:
			found = append(found, nulls(where+name+".", inner, answered)...)
		}
	}
	return found
}

// missingFields are those of a struct, and of structs in it, that are not among the fields.
func missingFields(where string, of reflect.Type, fields map[string]any) (missing []string) {
	for name, f := range jsonFields(of) {
		value, there := fields[name]
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case !there:
			missing = append(missing, where+name)
		case inner.Kind() == reflect.Struct:
			missing = append(missing, missingFields(where+name+".", inner, value.(map[string]any))...)
		}
	}
	return missing
}

// argumentTypes are the types that the methods of the offered packages take as the body of a
// request, sorted.
func argumentTypes(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/ngrok/ngrok-api-go/v7").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, pkg := range offered {
		parsed, err := parser.ParseFile(token.NewFileSet(),
			filepath.Join(strings.TrimSpace(string(dir)), pkg, "client.go"),
			nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if p, ok := n.(*ast.Field); ok && len(p.Names) == 1 && p.Names[0].Name == "arg" {
				found[p.Type.(*ast.StarExpr).X.(*ast.SelectorExpr).Sel.Name] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

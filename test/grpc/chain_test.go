// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/testenv/fixedsource"
	"github.com/fairlead-dev/fairlead/internal/testenv/freeaddr"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// chain is a service of its own, whose account may use the public hosts below domain.
type chain struct {
	certs certificates
	at    service.Addresses
	tls   *tls.Config // to the service

	token, operator string
}

const domain = "edge.test"

func startChain(t *testing.T) *chain {
	t.Helper()
	dir := t.TempDir()
	c := &chain{certs: issue(t, dir, "*."+domain, "localhost")}
	up := make(chan service.Addresses, 1)
	ended := background(t, func(ctx context.Context) error {
		return service.Run(ctx, service.Options{
			Addr: "127.0.0.1:0", DataDir: filepath.Join(dir, "data"), DrainTimeout: 10 * time.Second,
			EndpointGrace: time.Minute,
			Public: service.PublicOptions{
				HTTPSAddr: "127.0.0.1:0", TLSCerts: []string{c.certs.cert}, TLSKeys: []string{c.certs.key},
			},
			Logger: slog.New(slog.DiscardHandler), OnReady: func(a service.Addresses) { up <- a },
		})
	})
	c.at = await(t, up, ended)
	var err error
	if c.tls, err = (trust.Options{CASHA256: c.at.CAFingerprint}).ClientConfig(); err != nil {
		t.Fatal(err)
	}
	secrets, err := os.ReadFile(filepath.Join(dir, "data", service.BootstrapFileName))
	if err != nil {
		t.Fatal(err)
	}
	c.token = regexp.MustCompile(`flt_[\w-]+`).FindString(string(secrets))
	c.register(t, regexp.MustCompile(`flk_[\w-]+`).FindString(string(secrets)))
	st, err := store.Open(t.Context(), store.Options{DataDir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	accounts, err := st.ListAccounts(t.Context())
	if err == nil {
		_, err = st.GrantDomain(t.Context(), accounts[0].ID, "*."+domain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chain) url() string { return "https://" + c.at.Service.String() }

// register makes an operator for the forwarders.
func (c *chain) register(t *testing.T, apiKey string) {
	t.Helper()
	body := strings.NewReader(`{"description":"test","enabled_features":["bindings"]}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url()+"/kubernetes_operators", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + apiKey}, "Service-Version": {"2"}, "Content-Type": {"application/json"},
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var operator struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(res.Body).Decode(&operator); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("registering an operator: status %d, %v", res.StatusCode, err)
	}
	c.operator = operator.ID
}

// routes binds the upstream to an endpoint of either binding and returns how clients reach them.
func (c *chain) routes(t *testing.T, name string, to *upstream) []route {
	t.Helper()
	host := strings.ToLower(name)
	public, pod := "https://"+host+"."+domain, "http://"+host+".demo"
	target, err := agent.ParseUpstream("http", to.scheme+"://localhost:"+port(t, to.addr))
	if err != nil {
		t.Fatal(err)
	}
	target.Protocol = agent.ProtocolHTTP2
	var endpoints []agent.Endpoint
	for binding, raw := range map[string]string{account.BindingPublic: public, account.BindingKubernetes: pod} {
		url, err := account.ParseBindingURL(binding, raw)
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, agent.Endpoint{URL: url, Binding: binding, Upstream: target})
	}
	online := make(chan agent.Online, len(endpoints))
	ended := background(t, func(ctx context.Context) error {
		return agent.Run(ctx, agent.Options{
			Server: c.url(), Address: c.at.Service.String(), TLS: c.tls, Token: func() string { return c.token },
			Endpoints: endpoints, UpstreamTLS: &tls.Config{RootCAs: c.certs.pool, MinVersion: tls.VersionTLS12},
			Logger: slog.New(slog.DiscardHandler),
			Observe: func(e agent.Event) {
				if e, ok := e.(agent.Online); ok {
					online <- e
				}
			},
		})
	})
	ids := map[string]string{}
	for range endpoints {
		e := await(t, online, ended)
		ids[e.URL] = e.EndpointID
	}
	return []route{
		{"public", c.at.HTTPS.String(), host + "." + domain, true},
		{"kubernetes", c.forward(t, host, ids[pod]), host + ".demo", false},
	}
}

// forward runs a forwarder for the endpoint of the Service in namespace demo and returns where it
// listens.
func (c *chain) forward(t *testing.T, service, id string) string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(c.token), 0o600); err != nil {
		t.Fatal(err)
	}
	addr, err := freeaddr.Find()
	if err != nil {
		t.Fatal(err)
	}
	target, err := strconv.ParseInt(port(t, addr), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	host := service + ".demo"
	ended := background(t, func(ctx context.Context) error {
		return forwarder.Run(ctx, forwarder.Options{
			EdgeAddress: c.at.Service.String(), TLS: c.tls, AuthtokenFile: token, InstanceID: "test",
			Logger: slog.New(slog.DiscardHandler),
			Source: fixedsource.Source{OperatorID: c.operator, BoundEndpoints: []*v1alpha1.BoundEndpoint{{
				ObjectMeta: metav1.ObjectMeta{Name: host},
				Spec: v1alpha1.BoundEndpointSpec{
					Service: service, Namespace: "demo", ProjectionID: "ep-test", State: v1alpha1.StateBound,
					Ports:     []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: int32(target)}},
					Endpoints: []v1alpha1.EndpointRef{{ID: id, URL: "http://" + host}},
				},
			}}},
		})
	})
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return addr
		}
		select {
		case err := <-ended:
			t.Fatal("the forwarder ended:", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

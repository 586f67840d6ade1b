// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/fixedsource"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// chain is a public service with certificates of upstreams.
type chain struct {
	*servicetest.PublicServer
	upstreamCert, upstreamKey string // files
	upstreamRoots             *x509.CertPool
}

func startChain(t *testing.T) *chain {
	t.Helper()
	dir := t.TempDir()
	c := &chain{PublicServer: servicetest.StartPublic(t), upstreamCert: filepath.Join(dir, "tls.crt"),
		upstreamKey: filepath.Join(dir, "tls.key"), upstreamRoots: servicetest.IssueCertificate(t, dir, "localhost")}
	c.RegisterOperator()
	return c
}

// routes binds the upstream to an endpoint of either binding and returns the routes to them.
func (c *chain) routes(t *testing.T, name string, to *upstream) []route {
	t.Helper()
	host := strings.ToLower(name)
	public, pod := "https://"+host+".example.com", "http://"+host+".demo"
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
	ended := runInBackground(t, func(ctx context.Context) error {
		return agent.Run(ctx, agent.Options{
			ServerOptions: agent.ServerOptions{Server: "https://" + c.Addrs.Service.String(),
				Address: c.Addrs.Service.String(), TLS: c.ClientTLS(), Token: func() string { return c.Authtoken }},
			UpstreamOptions: agent.UpstreamOptions{
				UpstreamTLS: &tls.Config{RootCAs: c.upstreamRoots, MinVersion: tls.VersionTLS12}},
			Endpoints: endpoints, Logger: slog.New(slog.DiscardHandler),
			Observer: observerFunc(func(e agent.Event) {
				if e, ok := e.(agent.Online); ok {
					online <- e
				}
			}),
		})
	})
	ids := map[string]string{}
	for range endpoints {
		e := receive(t, online, ended)
		ids[e.URL] = e.EndpointID
	}
	return []route{
		{"public", c.Addrs.HTTPS.String(), host + ".example.com", c.Options.Public.TLSCerts[0]},
		{"kubernetes", c.startForwarder(t, host, ids[pod]), host + ".demo", ""},
	}
}

// startForwarder runs a forwarder for the endpoint of the Service in namespace demo and returns its
// address.
func (c *chain) startForwarder(t *testing.T, service, id string) string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(*c.CreateAuthtoken("connect:*").Token), 0o600); err != nil {
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
	ended := runInBackground(t, func(ctx context.Context) error {
		return forwarder.Run(ctx, forwarder.Options{
			EdgeAddress: c.Addrs.Service.String(), TLS: c.ClientTLS(), AuthtokenFile: token, InstanceID: "test",
			Logger: slog.New(slog.DiscardHandler),
			Source: fixedsource.Source{OperatorID: c.OperatorID, BoundEndpoints: []*v1alpha1.BoundEndpoint{{
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

// runInBackground runs an agent or forwarder until the test ends; ended gets what it returned.
func runInBackground(t *testing.T, run func(context.Context) error) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		result <- run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return result
}

// receive returns the next value from a part of the product, and fails when that ends before.
func receive[T any](t *testing.T, from <-chan T, ended <-chan error) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case err := <-ended:
		t.Fatal("ended:", err)
	case <-time.After(servicetest.MaxWait):
		t.Fatalf("nothing within %s", servicetest.MaxWait)
	}
	panic("unreachable")
}

// port returns the port of a host:port.
func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }

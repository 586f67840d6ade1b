// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/goruntime/memory"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/fixedsource"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
)

// The endpoints of the chain.
const (
	tcpURL  = "tcp://db.bench:5432"
	httpURL = "http://web.bench"
)

// installation is what the parts of our chain have to know of each other; it goes from process to
// process as JSON without blanks.
type installation struct {
	Server, CA, APIKey, Token, Operator string

	WebSocket    bool   // WebSocket makes agent and forwarder choose WebSockets.
	Sealed       bool   // Sealed is set for sealed endpoints.
	WithoutPairs bool   // WithoutPairs keeps the sealed connections in the multiplexer.
	Seal         string // folder of the sealed endpoints' certificate
	TokenFile    string // has the forwarders' token, which they read for every session
	TCP, HTTP    string // the agent: upstreams; the forwarder: endpoint ids
}

func (i installation) String() string {
	b, _ := json.Marshal(i)
	return string(b)
}

func parseInstallation(text string) (i installation, err error) {
	return i, json.Unmarshal([]byte(text), &i)
}

// clientConfig returns the TLS settings of the agent and the forwarder. Clients that have a certificate
// park no connections; this one is never asked for.
func (i *installation) clientConfig() (*tls.Config, error) {
	config, err := trust.Options{CASHA256: i.CA}.ClientConfig()
	if err == nil && i.WithoutPairs {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return nil, errors.New("the server asks for a certificate")
		}
	}
	return config, err
}

// runServer runs a service with a store of its own, and registers an operator. It returns its
// address and the installation. next is the folder, and the address to listen on if that is not
// loopback.
func runServer(ctx context.Context, _ keyring, next string) (string, error) {
	dir, addr, _ := strings.Cut(next, " ")
	up, ended := make(chan service.Addresses, 1), make(chan error, 1)
	drop := memory.Ballast() // as its command does
	o := service.Options{
		ListenOptions:        service.ListenOptions{Addr: cmp.Or(addr, "127.0.0.1:0")},
		DataOptions:          service.DataOptions{DataDir: dir, EndpointGrace: time.Minute},
		ObservabilityOptions: service.ObservabilityOptions{MetricsSeries: 2000, AccessLogSample: 1},
		DrainTimeout:         time.Second,
		Logger:               slog.New(slog.DiscardHandler), OnReady: func(a service.Addresses) { up <- a },
	}
	go func() { defer drop(); ended <- service.Run(ctx, o) }()
	var at service.Addresses
	select {
	case at = <-up:
	case err := <-ended:
		return "", err
	}
	secrets, err := os.ReadFile(filepath.Join(dir, service.BootstrapFileName))
	if err != nil {
		return "", err
	}
	i := installation{Server: at.Service.String(), CA: at.CAFingerprint,
		APIKey:    regexp.MustCompile(`flk_[\w-]+`).FindString(string(secrets)),
		Token:     regexp.MustCompile(`flt_[\w-]+`).FindString(string(secrets)),
		TokenFile: filepath.Join(dir, "authtoken")}
	var operator struct{ ID string }
	var forwarders struct{ Token string }
	err = errors.Join(
		i.create(ctx, "/kubernetes_operators", `{"description":"bench","enabled_features":["bindings"]}`, &operator),
		i.create(ctx, "/credentials", `{"acl":["connect:*"]}`, &forwarders))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(i.TokenFile, []byte(forwarders.Token), 0o600); err != nil {
		return "", err
	}
	i.Operator = operator.ID
	return i.Server + " " + i.String(), nil
}

// create creates an object through the account's API; made gets the answer.
func (i *installation) create(ctx context.Context, path, body string, made any) error {
	config, err := trust.Options{CASHA256: i.CA}.ClientConfig()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+i.Server+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + i.APIKey}, "Service-Version": {"2"},
		"Content-Type": {"application/json"}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusCreated {
		return fmt.Errorf("creating %s: status %d: %s, %w", path, res.StatusCode, answer, err)
	}
	return json.Unmarshal(answer, made)
}

// runAgent binds both endpoints. It returns "none" and the ids.
func runAgent(ctx context.Context, _ keyring, next string) (string, error) {
	i, err := parseInstallation(next)
	if err != nil {
		return "", err
	}
	config, err := i.clientConfig()
	if err != nil {
		return "", err
	}
	var endpoints []agent.Endpoint
	for raw, to := range map[string]string{tcpURL: i.TCP, httpURL: i.HTTP} {
		url, err := account.ParseEndpointURL(raw)
		if err != nil {
			return "", err
		}
		upstream, err := agent.ParseUpstream(url.Scheme, to)
		if err != nil {
			return "", err
		}
		e := agent.Endpoint{URL: url, Binding: account.BindingKubernetes, Upstream: upstream}
		if err := i.seal(&e); err != nil {
			return "", err
		}
		endpoints = append(endpoints, e)
	}
	online, ended := make(chan agent.Online, 10), make(chan error, 10)
	go func() {
		ended <- agent.Run(ctx, agent.Options{
			ServerOptions: agent.ServerOptions{Server: "https://" + i.Server, Address: i.Server, TLS: config,
				Token: func() string { return i.Token }, DialServer: i.webSocketDialer()},
			Endpoints: endpoints, Logger: slog.New(slog.DiscardHandler),
			Observer: observerFunc(func(e agent.Event) {
				switch e := e.(type) {
				case agent.Online:
					online <- e
				case agent.Connected:
					if (e.Carrier.Name == tunnel.CarrierWebSocket) != i.WebSocket {
						ended <- fmt.Errorf("the session is carried by %+v", e.Carrier)
					}
				}
			}),
		})
	}()
	for range endpoints {
		select {
		case e := <-online:
			if strings.HasPrefix(e.URL, "tcp") {
				i.TCP = e.EndpointID
			} else {
				i.HTTP = e.EndpointID
			}
		case err := <-ended:
			return "", err
		}
	}
	return "none " + i.String(), nil
}

// runForwarder listens for both endpoints and returns the addresses: tcp, then http.
func runForwarder(ctx context.Context, _ keyring, next string) (string, error) {
	i, err := parseInstallation(next)
	if err != nil {
		return "", err
	}
	config, err := i.clientConfig()
	if err != nil {
		return "", err
	}
	objects := fixedsource.Source{OperatorID: i.Operator}
	var addrs []string
	for raw, id := range map[string]string{tcpURL: i.TCP, httpURL: i.HTTP} {
		addr, err := freeaddr.Find()
		if err != nil {
			return "", err
		}
		object, err := boundEndpoint(raw, id, addr)
		if err != nil {
			return "", err
		}
		objects.BoundEndpoints = append(objects.BoundEndpoints, object)
		if raw == tcpURL {
			addrs = append([]string{addr}, addrs...)
		} else {
			addrs = append(addrs, addr)
		}
	}
	rules, err := i.trust()
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	drop := memory.Ballast() // as its command does
	go func() {
		defer drop()
		ended <- forwarder.Run(ctx, forwarder.Options{
			EdgeAddress: i.Server, TLS: config, Dial: i.webSocketDialer(), AuthtokenFile: i.TokenFile,
			InstanceID: "bench", Source: objects, RuleOptions: forwarder.RuleOptions{Trust: rules},
			Logger: slog.New(slog.DiscardHandler),
		})
	}()
	for _, addr := range addrs { // each answers once it listens
		if err := awaitAddr(addr, ended); err != nil {
			return "", err
		}
	}
	return strings.Join(addrs, " "), nil
}

func boundEndpoint(raw, id, addr string) (*v1alpha1.BoundEndpoint, error) {
	url, err := account.ParseEndpointURL(raw)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	target, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return nil, err
	}
	service, namespace, _ := strings.Cut(url.Host, ".")
	return &v1alpha1.BoundEndpoint{
		ObjectMeta: metav1.ObjectMeta{Name: url.Host},
		Spec: v1alpha1.BoundEndpointSpec{
			Service: service, Namespace: namespace, ProjectionID: "ep-bench", State: v1alpha1.StateBound,
			Ports:     []v1alpha1.BoundPort{{Port: int32(url.Port), Scheme: url.Scheme, TargetPort: int32(target)}},
			Endpoints: []v1alpha1.EndpointRef{{ID: id, URL: url.String()}},
		},
	}, nil
}

// awaitAddr waits until a connection to addr is accepted.
func awaitAddr(addr string, ended <-chan error) error {
	for range 6000 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("no listener on %s", addr)
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }

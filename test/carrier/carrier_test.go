// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// network is what lies between the agent and a service.
type network struct {
	proxy   string      // proxy is the value of HTTPS_PROXY; "" = none.
	tls     *tls.Config // what the agent trusts on this way; nil = the service's certificate
	address string      // address at which the agent finds the service; "" = that of anyHost
	carrier string
}

// anyHost is the address of the service for proxies, which are not asked for loopback addresses.
func anyHost(s *servicetest.Server) string {
	_, port, _ := net.SplitHostPort(s.Addrs.Service.String())
	return "0.0.0.0:" + port
}

// networks are made for a service, by name; each skips the test when its program is missing.
var networks = map[string]func(*testing.T, *servicetest.Server) network{
	"squid": func(t *testing.T, _ *servicetest.Server) network {
		return network{proxy: "http://" + startSquid(t, "http_port %s", ""), carrier: tunnel.ALPN}
	},
	"squid with TLS": func(t *testing.T, _ *servicetest.Server) network {
		proxy := startSquid(t, "https_port %s tls-cert=%s/ca.pem", "")
		return network{proxy: "https://" + proxy, carrier: tunnel.ALPN}
	},
	"squid that inspects TLS": func(t *testing.T, _ *servicetest.Server) network {
		proxy := startSquid(t, "http_port %s ssl-bump tls-cert=%s/ca.pem generate-host-certificates=on", inspects)
		return network{proxy: "http://" + proxy, tls: &tls.Config{RootCAs: trusted(t), ServerName: "localhost"},
			carrier: tunnel.CarrierWebSocket}
	},
	"tinyproxy with a password": func(t *testing.T, _ *servicetest.Server) network {
		return network{proxy: "http://user:secret@" + startTinyproxy(t), carrier: tunnel.ALPN}
	},
	"a SOCKS server with a password": func(t *testing.T, _ *servicetest.Server) network {
		return network{proxy: "socks5://user:secret@" + startMicrosocks(t), carrier: tunnel.ALPN}
	},
	"a balancer that ends TLS": func(t *testing.T, s *servicetest.Server) network {
		b := startBalancer(t, s)
		return network{address: b.Listener.Addr().String(), carrier: tunnel.CarrierWebSocket,
			tls: &tls.Config{RootCAs: b.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
	},
}

// startBalancer starts a balancer before the service that speaks HTTP/1.1 only, on both sides.
func startBalancer(t *testing.T, s *servicetest.Server) *httptest.Server {
	target, err := url.Parse("https://" + s.Addrs.Service.String())
	must.Succeed(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{TLSClientConfig: s.ClientTLS()}
	proxy.Transport, proxy.ErrorLog = transport, log.New(io.Discard, "", 0)
	b := httptest.NewUnstartedServer(proxy)
	b.Config.ErrorLog = proxy.ErrorLog
	b.StartTLS()
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
		transport.CloseIdleConnections()
	})
	return b
}

func TestCarrier_CarriesEverything(t *testing.T) {
	t.Parallel()
	for name, start := range networks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servicetest.Start(t)
			n := start(t, s)
			goOn := make(chan struct{}, 1)
			bound, carrier := startAgent(t, s, n, servicetest.ServeHTTP(t, upstream(goOn)))
			if carrier.Name != n.carrier || (carrier.Reason == "") != (n.carrier == tunnel.ALPN) {
				t.Errorf("the session is carried by %+v, want %s", carrier, n.carrier)
			}
			f := s.StartForwarder()
			tr := f.Transport(bound)
			for range 2 {
				body := servicetest.ReadAll(t, f.Do(tr, "GET", bound.URL+"/large", nil, nil).Body)
				if len(body) != largeBody {
					t.Errorf("an answer of %d bytes, want %d", len(body), largeBody)
				}
			}
			for _, path := range []string{"/events", "/poll"} {
				res := f.Do(tr, "GET", bound.URL+path, nil, nil)
				in := bufio.NewReader(res.Body)
				for i := range 2 { // the second one is not sent before the first has arrived
					if line, err := in.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) || err != nil {
						t.Errorf("%s: %q, %v", path, line, err)
					}
					goOn <- struct{}{}
				}
			}
			for _, protocol := range []string{"websocket", "echo"} {
				upgrade(t, f.Open(servicetest.OpenHeader(t, bound)), protocol)
			}
		})
	}
}

// startAgent runs an agent that serves the upstream, and returns its endpoint and its carrier once it
// is online.
func startAgent(t *testing.T, s *servicetest.Server, n network, upstream string) (tunnel.Bound, tunnel.Carrier) {
	t.Helper()
	to, err := agent.ParseUpstream("http", upstream)
	must.Succeed(t, err)
	at, err := account.ParseEndpointURL("http://carried.demo")
	must.Succeed(t, err)
	o := agent.ServerOptions{Server: s.Options.BaseURL, Address: n.address, TLS: n.tls,
		Token: func() string { return s.Authtoken }, MaxBackoff: 100 * time.Millisecond}
	if n.address == "" {
		o.Address = anyHost(s)
	}
	if n.tls == nil {
		o.TLS = s.ClientTLS()
		o.TLS.ServerName = "localhost"
	}
	env := map[string]string{"HTTPS_PROXY": n.proxy}
	o.DialServer, err = connectproxy.Dialer(func(name string) string { return env[name] }, o.Address, nil, trusted(t))
	must.Succeed(t, err)
	events := make(chan agent.Event, 1000)
	a := agent.New(agent.Options{ServerOptions: o, InstanceID: "in-1", KeepRunning: true,
		Endpoints: []agent.Endpoint{{Key: "x", URL: at, Binding: account.BindingKubernetes, Upstream: to,
			Dial: new(net.Dialer).DialContext}},
		Observer: observerFunc(func(e agent.Event) { events <- e }), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must.Succeed(t, <-ended)
	})
	var carrier tunnel.Carrier
	for {
		switch e := servicetest.Receive(t, events, "endpoint that is online").(type) {
		case agent.Connected:
			carrier = e.Carrier
		case agent.Retrying:
			t.Log("retrying:", e.Cause)
		case agent.Online:
			return tunnel.Bound{EndpointID: e.EndpointID, URL: e.AssignedURL}, carrier
		}
	}
}

type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }

const largeBody = 4 << 20

// upstream serves what is carried. An event stream and a long poll go on when goOn says so.
func upstream(goOn <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/large":
			w.Header().Set("Content-Length", strconv.Itoa(largeBody))
			_, _ = w.Write(make([]byte, largeBody))
		case r.Header.Get("Upgrade") != "":
			conn, in, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
				"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", r.Header.Get("Upgrade"))
			_, _ = io.Copy(conn, in)
			_ = conn.Close()
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 2 {
				_, _ = fmt.Fprintf(w, "data: %d\n", i)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
			}
		}
	}
}

// upgrade asks for a protocol and expects that bytes come back.
func upgrade(t *testing.T, conn net.Conn, protocol string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: carried.demo\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", protocol, protocol)
	must.Succeed(t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	must.Succeed(t, err)
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %s", protocol, res.Status)
	}
	for _, sent := range []string{"\x00one\n", "\xfftwo\n"} {
		_, err := io.WriteString(conn, sent)
		must.Succeed(t, err)
		if got, err := in.ReadString('\n'); got != sent || err != nil {
			t.Errorf("%s: %q came back for %q: %v", protocol, got, sent, err)
		}
	}
	_ = conn.Close()
}

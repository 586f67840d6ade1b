// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func echoHost(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Host+" "+r.Header.Get("X-Forwarded-Host"))
}

// TestEdge_ComparesHostWithEndpoint checks that the upstream gets no Host but the endpoint's names,
// over HTTP/1 and HTTP/2.
func TestEdge_ComparesHostWithEndpoint(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, echoHost)
	protocols := map[string]*http.Transport{
		"HTTP/1": p.Transport,
		"HTTP/2": p.Forwarder.Transport(p.Bound, func(p *http.Protocols) {
			p.SetHTTP1(false)
			p.SetUnencryptedHTTP2(true)
		}),
	}
	for host, want := range map[string]int{
		"hello.demo": 200, "HELLO.Demo": 200, "hello.demo.": 200, "hello.demo:80": 200, "hello": 200,
		"hello.demo.svc": 200, "hello.demo.svc.cluster.local": 200, "hello.demo.svc.cluster.local.:80": 200,
		"hello.demo.svc.clusterset.local": 200, p.Bound.EndpointID + ".fairlead.svc.cluster.local": 200,
		p.Bound.EndpointID: 200, p.Bound.EndpointID + ".fairlead": 200,
		"10.0.0.1": 200, "10.0.0.1:8080": 200, "[fd00::1]:80": 200, "[fd00::1]": 200, "localhost:9000": 200,
		"secret.demo": 421, "hello.demo:81": 421, "hello.secret": 421, "hello.demo.example.com": 421,
		"hello.demosvc": 421, "hello.demo.svc2": 421, "ep-other.fairlead.svc": 421, "x.hello.demo": 421,
		p.Bound.EndpointID + ".a.b": 421, "localhost.": 200, "localhost.example.com": 421,
	} {
		for name, transport := range protocols {
			res := p.Forwarder.Do(transport, "GET", "http://"+host+"/", nil, nil)
			body := servicetest.ReadAll(t, res.Body)
			switch code := res.Header.Get(account.CodeHeader); {
			case res.StatusCode != want, want == 421 && code != string(account.CodeMisdirected),
				want == 200 && body != host+" "+host:
				t.Errorf("%s, Host %s: %d %s %q", name, host, res.StatusCode, code, body)
			case want == 421 && !strings.Contains(body, "Call it as hello.demo, or start its agent with "):
				t.Errorf("the page %q", body)
			}
		}
	}
}

// TestEdge_ComparesHostOfEveryRequest sends another endpoint's Host behind a request to this one,
// and none in HTTP/1.0.
func TestEdge_ComparesHostOfEveryRequest(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, echoHost)
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	const get = "GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
	_, _ = fmt.Fprintf(st, get+get+get+"GET / HTTP/1.0\r\n\r\n", "hello.demo", "secret.demo", "hello.demo")
	framingtest.ExpectAnswers(t, st, "200 421 200 200")
}

// TestEdge_HidesForeignHost checks that an upstream which does not see the client's Host does not
// learn another endpoint's by X-Forwarded-Host either.
func TestEdge_HidesForeignHost(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, echoHost, func(b *tunnel.Bind) { b.HostMode = "shop.example.com" })
	for host, want := range map[string]string{"secret.demo": "hello.demo", "hello": "hello"} {
		res := p.Forwarder.Do(p.Transport, "GET", "http://"+host+"/", nil, nil)
		if got := servicetest.ReadAll(t, res.Body); got != "shop.example.com "+want {
			t.Errorf("Host %s: %q", host, got)
		}
	}
}

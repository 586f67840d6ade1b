// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestPublic_WarnsOfEndpointWithoutCertificate checks that an https endpoint that no certificate
// covers can be bound, and that the log names the reason why clients cannot reach it; the
// listeners' connections are counted.
func TestPublic_WarnsOfEndpointWithoutCertificate(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	w.Bind("public", "https://app.example.com", servicetest.DescribeRequest)
	w.Bind("public", "http://deep.app.example.com", servicetest.DescribeRequest)
	warned := func() bool { return strings.Contains(w.Log.String(), "no certificate of the service covers ") }
	if warned() {
		t.Errorf("warned of an endpoint that is covered, or needs none:\n%s", w.Log)
	}
	w.Bind("public", "https://deep.app.example.com", servicetest.DescribeRequest)
	if !warned() || !strings.Contains(w.Log.String(), "https://deep.app.example.com") {
		t.Errorf("not warned:\n%s", w.Log)
	}
	if _, err := tls.Dial("tcp", w.Addrs.HTTPS.String(),
		&tls.Config{ServerName: "deep.app.example.com", RootCAs: w.Roots}); err == nil {
		t.Error("there is a certificate for it")
	}
	if status, _ := w.GetPage("https://app.example.com/"); status != 200 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{`fairlead_server_public_connections_total{outcome="no_handshake"} 1`,
		`fairlead_server_public_connections_total{outcome="accepted"} 2`,
		`fairlead_server_public_connections_total{outcome="too_many"} 0`, "fairlead_server_public_connections "} {
		servicetest.Eventually(t, want, func() bool { return strings.Contains(w.ScrapeMetrics(), want) })
	}
}

// TestPublic_AgentsLearnAddresses checks what an agent is told of where its endpoint is reached. PORT
// stands for the listener's.
func TestPublic_AgentsLearnAddresses(t *testing.T) {
	t.Parallel()
	open := servicetest.StartPublic(t)
	proxied := servicetest.StartPublic(t, func(o *service.Options) {
		o.Public.TrustedProxies, o.Public.HTTPSAddr, o.Public.TLSCerts, o.Public.TLSKeys =
			[]string{"10.0.0.0/8"}, "", nil, nil
	})
	bare := servicetest.StartPublic(t, func(o *service.Options) { o.Public = service.PublicOptions{} })
	for _, c := range []struct {
		w            *servicetest.PublicServer
		binding, url string
		at           string // where the listener answers
		unreachable  string
	}{
		{open, "public", "http://app.example.com", "http://app.example.com:PORT", ""},
		{open, "public", "https://app.example.com", "https://app.example.com:PORT", ""},
		{open, "public", "http://odd.example.com:4000", "http://odd.example.com:4000", ""}, // not the usual port
		{open, "public", "https://both.example.com", "https://both.example.com:PORT", ""},
		{open, "public", "http://both.example.com", "http://both.example.com", ""}, // others are redirected
		{open, "public", "https://deep.app.example.com", "", "certificate of the service covers deep.app."},
		{open, "kubernetes", "http://app.demo", "", ""},
		{proxied, "public", "http://app.example.com", "http://app.example.com", ""},
		{proxied, "public", "https://app.example.com", "https://app.example.com", ""},
		{bare, "public", "https://app.example.com", "", "no public listener for https: set --public-https-addr"},
	} {
		bound := c.w.Bind(c.binding, c.url, servicetest.DescribeRequest)
		listener := c.w.Addrs.HTTP
		if strings.HasPrefix(c.url, "https") {
			listener = c.w.Addrs.HTTPS
		}
		want := c.at
		if strings.HasSuffix(want, "PORT") {
			want = strings.ReplaceAll(want, "PORT", strconv.Itoa(listener.(*net.TCPAddr).Port))
		}
		if bound.ListenerURL != want || !strings.Contains(bound.Unreachable, c.unreachable) ||
			(bound.Unreachable == "") != (c.unreachable == "") {
			t.Errorf("%s: %q %q, want %q", c.url, bound.ListenerURL, bound.Unreachable, want)
		}
	}
}

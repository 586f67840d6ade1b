// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"crypto/tls"
	"strings"
	"testing"

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
	warned := func() bool { return strings.Contains(w.Log.String(), "no certificate covers it") }
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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"crypto/tls"
	"strings"
	"testing"
)

// An https endpoint that no certificate covers can be bound, and the log says why nobody will reach
// it; the listeners' connections are counted.
func TestPublic_WarnsOfEndpointWithoutCertificate(t *testing.T) {
	t.Parallel()
	w := startPublic(t)
	w.bind("public", "https://app.example.com", hello)
	w.bind("public", "http://deep.app.example.com", hello)
	warned := func() bool { return strings.Contains(w.log.String(), "no certificate covers it") }
	if warned() {
		t.Errorf("warned of an endpoint that is covered, or needs none:\n%s", w.log)
	}
	w.bind("public", "https://deep.app.example.com", hello)
	if !warned() || !strings.Contains(w.log.String(), "https://deep.app.example.com") {
		t.Errorf("not warned:\n%s", w.log)
	}
	if _, err := tls.Dial("tcp", w.addrs.HTTPS.String(),
		&tls.Config{ServerName: "deep.app.example.com", RootCAs: w.roots}); err == nil {
		t.Error("there is a certificate for it")
	}
	if status, _ := w.getPage("https://app.example.com/"); status != 200 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{`fairlead_server_public_connections_total{outcome="no_handshake"} 1`,
		`fairlead_server_public_connections_total{outcome="accepted"} 2`,
		`fairlead_server_public_connections_total{outcome="too_many"} 0`, "fairlead_server_public_connections "} {
		eventually(t, want, func() bool { return strings.Contains(w.scrapeMetrics(), want) })
	}
}

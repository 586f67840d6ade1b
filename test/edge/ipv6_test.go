// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"crypto/tls"
	"net"
	"strconv"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestServer_ListensOnIPv4AndIPv6 checks that one address of all families serves both, and that the
// certificate holds for the literals.
func TestServer_ListensOnIPv4AndIPv6(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6 on loopback")
	}
	_ = probe.Close()
	r := servicetest.Start(t, func(o *service.Options) { o.Addr, o.BaseURL = "[::]:0", "https://[2001:db8::1]:8443" })
	config, err := trust.Options{CASHA256: r.Addrs.CAFingerprint}.ClientConfig()
	must.Succeed(t, err)
	port := strconv.Itoa(r.Addrs.Service.(*net.TCPAddr).Port)
	for dial, name := range map[string]string{"127.0.0.1": "127.0.0.1", "::1": "::1", "localhost": "2001:db8::1"} {
		config := config.Clone()
		config.ServerName = name
		c, err := tls.Dial("tcp", net.JoinHostPort(dial, port), config)
		if err != nil {
			t.Errorf("%s as %s: %v", dial, name, err)
			continue
		}
		_ = c.Close()
	}
}

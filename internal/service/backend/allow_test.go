// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestGuard_AllowsPorts(t *testing.T) {
	t.Parallel()
	allow, err := ParseAllow("--static-allow", []string{
		"10.0.0.0/8:5432", "10.1.2.3:443", "[fd00::/8]:80", "[fd00::1]:8443", "192.168.0.0/16", "127.0.0.1:8080",
		"127.0.0.1:8081",
	})
	must.Succeed(t, err)
	g := Guard{Allow: allow}
	for text, want := range map[string]bool{
		"10.9.9.9:5432": true, "10.9.9.9:443": false, "10.1.2.3:443": true, "10.1.2.3:5432": true, "10.1.2.3:80": false,
		"[::ffff:10.1.2.3]:443": true, "[fd00::2]:80": true, "[fd00::2]:8443": false, "[fd00::1]:8443": true,
		"192.168.1.1:1": true, "192.168.1.1:65535": true, "127.0.0.1:8080": true, "127.0.0.1:8081": true,
		"127.0.0.1:8082": false,
		"8.8.8.8:1":      true,
	} {
		err := g.Check(netip.MustParseAddrPort(text))
		if (err == nil) != want || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestGuard_DialsAllowedPortsOnly(t *testing.T) {
	t.Parallel()
	allowed, arrived := listen(t, "127.0.0.1:0")
	other, astray := listen(t, "127.0.0.1:0")
	allow, err := ParseAllow("--static-allow", []string{"127.0.0.0/8:" + allowed})
	must.Succeed(t, err)
	g := Guard{Allow: allow, Resolver: names(t, map[string][]string{"loop.example.": {"127.0.0.1"}})}
	for _, host := range []string{"127.0.0.1:", "loop.example:", "[::ffff:127.0.0.1]:"} {
		c, err := g.Dial(t.Context(), "tcp", host+allowed)
		must.Succeed(t, err)
		_ = c.Close()
		<-arrived
		if _, err := g.Dial(t.Context(), "tcp", host+other); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s with another port: %v", host, err)
		}
	}
	if len(astray) > 0 {
		t.Errorf("%d connections arrived at the other port", len(astray))
	}
}

func TestParseAllow_RefusesOtherTexts(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:080", "10.0.0.1:http", "10.0.0.0:80/8",
		"10.0.0.0/33:80",
		"[10.0.0.1]:80", "[fd00::1]", "fd00::/8:80", "[fd00::/129]:80", "[fe80::1%eth0]:80", "[::ffff:10.0.0.1]:80",
		"example.com:80", ":80",
	} {
		_, err := ParseAllow("--static-allow", []string{bad})
		if account.CodeOf(err) != account.CodeInvalid || !strings.Contains(err.Error(), "--static-allow") ||
			!strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

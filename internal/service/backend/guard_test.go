// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestGuard_RefusesNonPublicAddresses refuses addresses that no tenant may have the service
// connect to, in every spelling.
func TestGuard_RefusesNonPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255",
		"192.168.1.1",
		"100.64.0.1", "100.100.100.200", "100.127.255.255", "169.254.0.1", "169.254.169.254", "169.254.170.2",
		"168.63.129.16", "192.0.0.192",
		"192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1",
		"239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
		"::ffff:0:127.0.0.1",
		"fe80::1", "fe80::1%eth0", "2606:4700::1111%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1",
		"ff02::1",
		"ff0e::1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.1.2.3", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1:7f00:0:100::",
		"2002:7f00:1::1", "2002:a00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::1", "2001:0:7f00:1::1", "2001:db8::1",
		"2001:2::1", "2001:20::1", "3fff::1",
		"100::1", "5f00::1", "4000::1", "e000::1",
	} {
		g := Guard{}
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(text), 443)); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := (&Guard{}).Check(netip.AddrPort{}); !errors.Is(err, ErrForbidden) {
		t.Errorf("no address at all: %v", err)
	}
}

func TestGuard_PermitsPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.255.255",
		"172.32.0.1",
		"192.167.1.1", "223.255.255.255",
		"::ffff:8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "64:ff9b::808:808",
		"2002:808:808::1",
	} {
		g := Guard{}
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(text), 443)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestGuard_AllowsListedRanges(t *testing.T) {
	t.Parallel()
	allow, err := ParseAllow("--static-allow", []string{"10.1.0.0/16", "127.0.0.1", "fd00:1::5/64"})
	must.Succeed(t, err)
	g := Guard{Allow: allow}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "127.0.0.1": true, "127.0.0.2": false,
		"fd00:1::99": true, "fd00:2::1": false,
		"64:ff9b::10.1.2.3": false, "169.254.169.254": false,
	} {
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(text), 443)); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "10.0.0/8", "example.com", "::ffff:10.0.0.0/104", "fe80::1%eth0"} {
		if _, err := ParseAllow("--static-allow", []string{bad}); account.CodeOf(err) != account.CodeInvalid ||
			!strings.Contains(err.Error(), "--static-allow") || !strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// listen counts the connections that reach loopback.
func listen(t *testing.T, address string) (port string, accepted <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("no %s here: %v", address, err)
	}
	seen := make(chan struct{}, 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen <- struct{}{}
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, seen
}

// TestGuard_DialsNoLoopback refuses every spelling of loopback that a dialer understands, and
// names that resolve to it, before a packet is sent.
func TestGuard_DialsNoLoopback(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t, "127.0.0.1:0")
	g := Guard{Resolver: names(t,
		map[string][]string{"loop.example.": {"127.0.0.1"},
			"both.example.": {"10.0.0.1", "::1", "127.0.0.1", "169.254.169.254"}})}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0",
		"[::]", "127.1", "0x7f000001", "2130706433", "0177.0.0.1",
		"", "loop.example", "both.example", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"} {
		c, err := g.Dial(t.Context(), "tcp", host+":"+port)
		if err == nil {
			_ = c.Close()
			t.Errorf("%q: connected", host)
		}
	}
	for _, bad := range [][2]string{{"udp", "8.8.8.8:53"}, {"unix", "/run/docker.sock"}, {"tcp", "8.8.8.8"},
		{"tcp", "8.8.8.8:0"}, {"tcp", "8.8.8.8:99999"}, {"tcp", "8.8.8.8:http"}, {"tcp", "8.8.8.8:-1"}} {
		if _, err := g.Dial(t.Context(), bad[0], bad[1]); err == nil {
			t.Errorf("%v: connected", bad)
		}
	}
	if len(accepted) > 0 {
		t.Errorf("%d connections arrived", len(accepted))
	}
	if _, err := g.Dial(t.Context(), "tcp", "loop.example:"+port); !errors.Is(err, ErrForbidden) {
		t.Errorf("a name of loopback: %v", err)
	}
}

// TestGuard_DialsAllowedAddressesOfName dials only the allowed addresses of a name.
func TestGuard_DialsAllowedAddressesOfName(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t, "127.0.0.1:0")
	g := Guard{
		Allow: []Allowed{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
		Resolver: names(t, map[string][]string{"api.example.": {"169.254.169.254", "10.0.0.1", "fd00:ec2::254", "::1",
			"127.0.0.1"}}),
	}
	c, err := g.Dial(t.Context(), "tcp", "api.example:"+port)
	must.Succeed(t, err)
	defer c.Close()
	<-accepted
	if got := c.RemoteAddr().String(); got != "127.0.0.1:"+port {
		t.Errorf("connected to %s", got)
	}
	if _, err := g.Dial(t.Context(), "tcp6", "api.example:"+port); !errors.Is(err, ErrForbidden) {
		t.Errorf("over IPv6 alone: %v", err)
	}
}

// TestGuard_WithstandsRebinding resolves a name to an allowed address first and to a forbidden
// one next: Guard looks it up once and dials what it checked.
func TestGuard_WithstandsRebinding(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t, "127.0.0.2:0")
	answers := make(chan string, 2)
	answers <- "127.0.0.1" // allowed, without a listener on that port
	answers <- "127.0.0.2" // not allowed
	g := Guard{
		Allow: []Allowed{{Prefix: netip.MustParsePrefix("127.0.0.1/32")}},
		Resolver: dns(t, func(_ string, _ dnsmessage.Type) []string {
			select {
			case a := <-answers:
				return []string{a}
			default:
				return []string{"127.0.0.2"}
			}
		}),
	}
	for range 3 {
		if c, err := g.Dial(t.Context(), "tcp4", "rebind.example:"+port); err == nil {
			_ = c.Close() // a listener of another test at 127.0.0.1
		}
	}
	if len(accepted) > 0 {
		t.Errorf("%d connections arrived", len(accepted))
	}
}

func TestGuard_TimesOut(t *testing.T) {
	t.Parallel()
	g := Guard{Timeout: 20 * time.Millisecond,
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done() // a name server that never answers
			return nil, ctx.Err()
		}}}
	var timeout net.Error
	if _, err := g.Dial(t.Context(), "tcp", "api.example:80"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a name server that does not answer: %v", err)
	}
}

func names(t *testing.T, hosts map[string][]string) *net.Resolver {
	return dns(t, func(name string, _ dnsmessage.Type) []string { return hosts[name] })
}

// dns is a resolver whose name server is in this process.
func dns(t *testing.T, answer func(name string, kind dnsmessage.Type) []string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Succeed(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := respond(buf[:n], answer); reply != nil {
				_, _ = server.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(func() { _ = server.Close(); wg.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func respond(query []byte, answer func(string, dnsmessage.Type) []string) []byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(query); err != nil || len(msg.Questions) != 1 {
		return nil
	}
	q := msg.Questions[0]
	msg.Response, msg.RecursionAvailable, msg.Authoritative, msg.Additionals = true, true, true, nil
	for _, text := range answer(q.Name.String(), q.Type) {
		addr := netip.MustParseAddr(text)
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case q.Type == dnsmessage.TypeA && addr.Is4():
			msg.Answers = append(msg.Answers,
				dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
		case q.Type == dnsmessage.TypeAAAA && addr.Is6():
			msg.Answers = append(msg.Answers,
				dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	reply, err := msg.Pack()
	if err != nil {
		return nil
	}
	return reply
}

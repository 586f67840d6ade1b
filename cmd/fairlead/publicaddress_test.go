// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
)

// fakeDNS has the addresses of hosts.
type fakeDNS map[string][]netip.Addr

func (d fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if len(d[host]) == 0 {
		return nil, errors.New("no such host")
	}
	return d[host], nil
}

// recorded is an agent.Observer.
type recorded chan agent.Event

func (r recorded) Observe(e agent.Event) { r <- e }

// TestHTTP_PrintsAddressesOfPublicEndpoint checks what the service says of a public endpoint.
func TestHTTP_PrintsAddressesOfPublicEndpoint(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, r := linePipe(t)
	env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"http", "8080", "--binding", "public", "--url", "http://shop.invalid.test",
			"--server", svc.url, "--ca-file", svc.caFile}, console{in: strings.NewReader(""), out: w, err: io.Discard,
			env: func(k string) string { return env[k] }})
	}()
	wanted := []string{"Also at     http://shop.invalid.test:8080, where the service listens",
		"may be out of reach: http://shop.invalid.test: no way"}
	for lines := bufio.NewScanner(r); len(wanted) > 0 && lines.Scan(); {
		if strings.HasSuffix(lines.Text(), wanted[0]) {
			wanted = wanted[1:]
		}
	}
	if cancel(); len(wanted) > 0 {
		t.Errorf("ended without %q", wanted)
	}
	if c := <-code; c != 0 {
		t.Errorf("code %d", c)
	}
}

func TestAddressObserver_ReportsHostsElsewhere(t *testing.T) {
	t.Parallel()
	here, away := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")
	mapped := netip.AddrFrom16(here.As16())
	for name, c := range map[string]struct {
		url, also      string
		host, server   []netip.Addr
		again          bool
		cause, command string // "" = none is reported
	}{
		"at the service":    {url: "http://a.test", host: []netip.Addr{away, mapped}, server: []netip.Addr{here}},
		"service not known": {url: "http://a.test"},
		"after a reconnect": {url: "http://a.test", server: []netip.Addr{here}, again: true},
		"no DNS record": {url: "http://a.test", server: []netip.Addr{here}, cause: "a.test does not resolve",
			command: "curl -H 'Host: a.test' http://192.0.2.1"},
		"no DNS record, another port": {url: "http://a.test", also: "http://a.test:8080", server: []netip.Addr{here},
			cause: "a.test does not resolve", command: "curl -H 'Host: a.test:8080' http://192.0.2.1:8080"},
		"elsewhere, with TLS": {url: "https://a.test", also: "https://a.test:8443", host: []netip.Addr{away},
			server:  []netip.Addr{netip.IPv6Loopback()},
			cause:   "a.test resolves to 198.51.100.7, and the service is at ::1, unless a balancer leads there",
			command: "curl --resolve a.test:8443:[::1] https://a.test:8443"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := make(recorded, 2)
			o := &addressObserver{Observer: events, ctx: t.Context(), server: "service.test:8443",
				resolver: fakeDNS{"a.test": c.host, "service.test": c.server}}
			online := agent.Online{EndpointInfo: agent.EndpointInfo{URL: c.url}, Reconnected: c.again,
				ListenerURL: cmp.Or(c.also, c.url)}
			o.Observe(online)
			o.lookups.Wait()
			close(events)
			var got []agent.Event
			for e := range events {
				got = append(got, e)
			}
			want := []agent.Event{online}
			if c.cause != "" {
				want = append(want, agent.Unreachable{EndpointInfo: online.EndpointInfo, Cause: c.cause,
					Command: c.command})
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

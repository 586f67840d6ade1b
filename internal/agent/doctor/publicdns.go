// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Resolver looks up addresses; *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// PublicDNS is where DNS leads clients of a public endpoint.
type PublicDNS struct {
	// Addrs are the addresses of the endpoint's host, Server those of the service's; empty where
	// DNS has none.
	Addrs, Server []netip.Addr
	host          string
}

// ResolvePublic looks up the host of a public endpoint, and that of the service.
func ResolvePublic(ctx context.Context, r Resolver, host, server string) PublicDNS {
	look := func(name string) []netip.Addr {
		all, _ := r.LookupNetIP(ctx, "ip", name)
		for i := range all {
			all[i] = all[i].Unmap()
		}
		return all
	}
	return PublicDNS{Addrs: look(host), Server: look(server), host: host}
}

// Problem returns why clients do not come to the service; "" where DNS leads them there, and where
// the service's address is not known.
func (d *PublicDNS) Problem() string {
	switch {
	case len(d.Server) == 0:
		return ""
	case len(d.Addrs) == 0:
		return d.host + " does not resolve"
	case slices.ContainsFunc(d.Addrs, func(a netip.Addr) bool { return slices.Contains(d.Server, a) }):
		return ""
	}
	return fmt.Sprintf("%s resolves to %s, and the service is at %s, unless a balancer leads there", d.host,
		joinAddrs(d.Addrs), joinAddrs(d.Server))
}

// TryCommand returns a command that calls a URL of the host at the service's address.
func (d *PublicDNS) TryCommand(rawURL string) string {
	u, err := account.ParseBindingURL(account.BindingPublic, rawURL)
	if err != nil || len(d.Server) == 0 {
		return ""
	}
	at := d.Server[0].String()
	if d.Server[0].Is6() {
		at = "[" + at + "]"
	}
	if host := strings.TrimPrefix(u.String(), "http://"); u.Scheme == "http" {
		_, port, _ := strings.Cut(host, ":")
		return "curl -H 'Host: " + host + "' http://" + strings.TrimSuffix(at+":"+port, ":")
	}
	return "curl --resolve " + net.JoinHostPort(u.Host, strconv.Itoa(u.Port)) + ":" + at + " " + u.String()
}

func joinAddrs(all []netip.Addr) string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}

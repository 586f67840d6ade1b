// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Versions of the PROXY protocol, values of Upstream.ProxyProtocol.
const (
	ProxyProtocol1 = "1"
	ProxyProtocol2 = "2"
)

// FieldProxyProtocol names the setting that SetProxyProtocol reads.
const FieldProxyProtocol = "proxy_protocol"

// SetProxyProtocol sets the version of the PROXY protocol that a tcp upstream reads; "" = none.
// Errors are CodeInvalid, with the field above.
func (u *Upstream) SetProxyProtocol(version string) error {
	switch {
	case version == "":
	case version != ProxyProtocol1 && version != ProxyProtocol2:
		return account.Invalid(FieldProxyProtocol, account.Shorten(version),
			"must be 1 or 2, the version of the PROXY protocol that the upstream reads")
	case u.Scheme == "http" || u.Scheme == "https":
		return account.Invalid(FieldProxyProtocol, version,
			"is for tcp endpoints; an http upstream finds the caller's address in X-Forwarded-For")
	}
	u.ProxyProtocol = version
	return nil
}

// writeProxyHeader writes the PROXY protocol's header, if the upstream reads one, with the client
// that h names: UNKNOWN, or LOCAL in version 2, when that has no address. An error closes conn.
func (u Upstream) writeProxyHeader(conn net.Conn, h tunnel.OpenHeader) error {
	if u.ProxyProtocol == "" {
		return nil
	}
	var source, destination net.Addr
	if client, err := netip.ParseAddrPort(h.ClientAddr); err == nil {
		client = netip.AddrPortFrom(client.Addr().Unmap().WithZone(""), client.Port())
		source, destination = net.TCPAddrFromAddrPort(client), proxyDestination(client, conn.RemoteAddr(), u.Port)
	}
	header := proxyproto.HeaderProxyFromAddrs(u.ProxyProtocol[0]-'0', source, destination)
	if _, err := header.WriteTo(conn); err != nil {
		_ = conn.Close()
		return fmt.Errorf("writing the PROXY protocol's header to %s: %w", u, err)
	}
	return nil
}

// proxyDestination returns the upstream's address, or the unspecified one where it is of another
// family than the client's: a header has one family.
func proxyDestination(client netip.AddrPort, remote net.Addr, port int) net.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok && (tcp.IP.To4() != nil) == client.Addr().Is4() {
		return tcp
	}
	unspecified := netip.IPv6Unspecified()
	if client.Addr().Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(unspecified, uint16(port)))
}

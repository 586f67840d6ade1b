// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// What the upstream speaks on an http endpoint.
const (
	ProtocolHTTP1 = "http1"
	ProtocolHTTP2 = "http2"
)

// Upstream is an address that the agent forwards to.
type Upstream struct {
	Scheme   string // "http", "https" or "tcp"
	Host     string // a name or an IP literal without brackets
	Port     int
	Protocol string // ProtocolHTTP1 or ProtocolHTTP2; "" for tcp
	// ProxyProtocol is the version of the PROXY protocol that a tcp upstream reads; "" = none. See
	// SetProxyProtocol.
	ProxyProtocol string
	// Roots are the authorities of an https upstream; nil = those of Options.UpstreamTLS. SetTrust
	// sets this field and the next two.
	Roots      *x509.CertPool
	Pin        trust.Pin // Pin replaces Roots, unless it is the zero value.
	ServerName string    // ServerName is the SNI and the name in the certificate; "" = Host
}

// Address returns host:port for a dialer.
func (u Upstream) Address() string { return net.JoinHostPort(u.Host, strconv.Itoa(u.Port)) }

// String returns the normal form, e.g. "http://localhost:8080". It is a URL: the zone of an IPv6
// address is written with %25 (RFC 6874).
func (u Upstream) String() string {
	return u.Scheme + "://" + strings.Replace(u.Address(), "%", "%25", 1)
}

var zonePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

// ParseUpstream reads the target of `fairlead http` (scheme "http"), `fairlead tcp` (scheme "tcp")
// or `fairlead tunnel` (scheme ""): a port of this machine, host:port, or a URL without anything
// behind the port. An IPv6 address stands in brackets. Errors are CodeInvalid with field
// "upstream".
func ParseUpstream(scheme, raw string) (Upstream, error) {
	bad := func(rule string) (Upstream, error) {
		return Upstream{}, account.Invalid("upstream", redactUserinfo(raw), rule)
	}
	u := Upstream{Scheme: scheme}
	if scheme == "" {
		u.Scheme = "tcp"
	}
	if scheme != "tcp" {
		u.Protocol = ProtocolHTTP1
	}
	rest := raw
	before, after, isURL := strings.Cut(raw, "://")
	if isURL {
		u.Scheme, rest = strings.ToLower(before), strings.TrimSuffix(after, "/")
		if rule := brokenSchemeRule(scheme, u.Scheme); rule != "" {
			return bad(rule)
		}
	}
	if rule := brokenAuthorityRule(rest); rule != "" {
		return bad(rule)
	}
	if !isURL && isNumber(rest) {
		rest = ":" + rest
	}
	host, port, ok := splitHostPort(rest)
	if !ok {
		return bad("write an IPv6 address in brackets, as in [::1]:8080")
	}
	if host == "" && !isURL {
		host = "localhost"
	}
	if !validHost(host) {
		return bad("the host must be a name or an IP address; give PORT, HOST:PORT or a URL")
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		if !isURL || port == "" {
			return bad("the port is missing; give PORT or HOST:PORT")
		}
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return bad("the port must be a number from 1 to 65535 without leading zeros")
	}
	u.Host, u.Port = host, n
	return u, nil
}

// redactUserinfo hides user name and password in a target that an error quotes.
func redactUserinfo(raw string) string {
	i := strings.LastIndex(raw, "@")
	if i < 0 {
		return raw
	}
	scheme, _, ok := strings.Cut(raw[:i], "://")
	if !ok {
		return "…" + raw[i:]
	}
	return scheme + "://…" + raw[i:]
}

// brokenSchemeRule returns the rule that the scheme of an upstream's URL breaks, or "".
func brokenSchemeRule(command, scheme string) string {
	switch {
	case command == "http" && scheme != "http" && scheme != "https":
		return "the scheme must be http or https; for anything else use `fairlead tcp HOST:PORT`"
	case command == "tcp" && scheme != "tcp":
		return "a tcp endpoint forwards to PORT or HOST:PORT; for a web server use `fairlead http`"
	case command == "" && scheme != "http" && scheme != "https" && scheme != "tcp":
		return "give PORT, HOST:PORT, or a URL with http, https or tcp"
	}
	return ""
}

// brokenAuthorityRule returns the rule that text before or after host and port breaks, or "".
func brokenAuthorityRule(rest string) string {
	for i := range len(rest) {
		if rest[i] <= ' ' || rest[i] >= 0x7f {
			return "only printable ASCII characters are allowed"
		}
	}
	switch {
	case strings.Contains(rest, "@"):
		return "user name and password are not allowed here; remove them, callers send their own"
	case strings.Contains(rest, "?"):
		return "a query is not allowed; remove it, callers send their own"
	case strings.Contains(rest, "#"):
		return "a fragment is not allowed; remove it"
	case strings.Contains(rest, "/"):
		return "a path is not allowed; remove it, callers send their own"
	}
	return ""
}

// splitHostPort splits at the last colon behind the brackets; the port may be missing. ok is false
// for an IPv6 address without brackets.
func splitHostPort(s string) (host, port string, ok bool) {
	if inner, rest, closed := strings.Cut(s, "]"); strings.HasPrefix(s, "[") && closed {
		inner = strings.Replace(inner[1:], "%25", "%", 1)
		addr, err := netip.ParseAddr(inner)
		port, hasPort := strings.CutPrefix(rest, ":")
		return inner, port, err == nil && addr.Is6() && zonePattern.MatchString(addr.Zone()) && (hasPort || rest == "")
	}
	host, port, _ = strings.Cut(s, ":")
	return host, port, !strings.Contains(port, ":")
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// validHost reports whether host is an IP address or a name that resolvers accept, underscores
// included. Bare numbers are refused: resolvers read them as IPv4.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return hostPattern.MatchString(host) && strings.Trim(host, "0123456789.") != "" && !strings.Contains(host, "..")
}

// upstreamTimeout bounds the dial of an upstream, its TLS handshake included.
const upstreamTimeout = 10 * time.Second

// DialFunc opens a connection, as (*net.Dialer).DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialUpstream connects to the upstream of an endpoint within the time-out. The certificate of an
// https upstream is verified by the Upstream's Pin or Roots, else by UpstreamTLS, else by the
// system's authorities.
func (o *Options) dialUpstream(ctx context.Context, s *spec, timeout time.Duration) (relay.HalfCloser, error) {
	dial, u := o.Dial, s.Upstream
	if s.Dial != nil {
		dial = s.Dial
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", u.Address())
	if err != nil {
		return nil, err
	}
	if u.Scheme == "https" {
		return u.handshake(ctx, raw, o.UpstreamTLS)
	}
	conn, ok := raw.(relay.HalfCloser)
	if !ok {
		return nil, errors.Join(fmt.Errorf("dialing %s: a %T cannot be half-closed", u, raw), raw.Close())
	}
	return conn, nil
}

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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
)

// PublicOptions are those of the public edge. Without an address there is no public edge.
type PublicOptions struct {
	HTTPAddr, HTTPSAddr string // host:port; "" = none
	// PEM files, one key for each certificate in their order; or directories among TLSCerts,
	// without a key
	TLSCerts, TLSKeys []string
	ProxyProtocol     bool     // TrustedProxies begin connections with its header
	TrustedProxies    []string // addresses, or networks as CIDRs; of the API's listener, too
	MaxConns          int      // connections; 0 = the default
	MaxConnsPerClient int      // connections from one IPv4 address or IPv6 /64; 0 = the default
}

func (o *PublicOptions) enabled() bool { return o.HTTPAddr != "" || o.HTTPSAddr != "" }

// parse sets the settings of the public edge, and notes every broken rule.
func (o *PublicOptions) parse(set *settings, note func(error)) {
	for flag, addr := range map[string]string{"--public-http-addr": o.HTTPAddr, "--public-https-addr": o.HTTPSAddr} {
		if addr != "" {
			note(checkListen(flag, addr))
		}
	}
	var err error
	set.publicCertFiles, err = o.certFiles()
	note(err)
	switch {
	case o.HTTPSAddr != "" && len(o.TLSCerts) == 0:
		note(account.Invalid("--public-https-addr", o.HTTPSAddr,
			"needs certificates: give --public-tls-cert and --public-tls-key; there is no self-signed one for "+
				"the public"))
	case o.HTTPSAddr == "" && len(o.TLSCerts) > 0:
		note(account.Invalid("--public-tls-cert", strings.Join(o.TLSCerts, ","), "goes with --public-https-addr"))
	}
	set.trustedProxies, err = o.trusted()
	note(err)
	if o.ProxyProtocol && len(o.TrustedProxies) == 0 {
		note(account.Invalid("--proxy-protocol", "true", "name the proxies that send it, with --trusted-proxies"))
	}
	if !o.enabled() && o.ProxyProtocol {
		note(account.Invalid("--proxy-protocol", "true", "goes with --public-http-addr or --public-https-addr"))
	}
	for flag, n := range map[string]int{"--public-max-connections": o.MaxConns,
		"--public-max-connections-per-client": o.MaxConnsPerClient} {
		if n < 0 {
			note(account.Invalid(flag, strconv.Itoa(n), "must be a number from 1, or 0 for the default"))
		}
	}
}

// certFiles pairs certificates and keys.
func (o *PublicOptions) certFiles() ([]public.CertFiles, error) {
	files := make([]public.CertFiles, 0, len(o.TLSCerts))
	keys := o.TLSKeys
	for _, cert := range o.TLSCerts {
		if info, err := os.Stat(cert); err == nil && info.IsDir() {
			files = append(files, public.CertFiles{Cert: cert})
			continue
		}
		if len(keys) == 0 {
			return nil, account.Invalid("--public-tls-cert", cert,
				"give a --public-tls-key for each certificate file, in the same order; a directory needs none")
		}
		files, keys = append(files, public.CertFiles{Cert: cert, Key: keys[0]}), keys[1:]
	}
	if len(keys) > 0 {
		return nil, account.Invalid("--public-tls-key", keys[0], "there is no --public-tls-cert for it")
	}
	return files, nil
}

// trusted reads the networks of trusted proxies.
func (o *PublicOptions) trusted() ([]netip.Prefix, error) {
	all := make([]netip.Prefix, 0, len(o.TrustedProxies))
	for _, text := range o.TrustedProxies {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			all = append(all, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, account.Invalid("--trusted-proxies", account.Shorten(text),
				"must be an IP address, or a network such as 10.0.0.0/8 or fd00::/8")
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// openPublic opens listeners and certificates of the public edge.
func (s *service) openPublic(ctx context.Context) error {
	o := &s.opt.Public
	if !o.enabled() {
		return nil
	}
	var err error
	if o.HTTPSAddr != "" {
		if s.publicCerts, err = public.OpenCertificates(s.publicCertFiles, s.log); err != nil {
			return err
		}
	}
	for flag, at := range map[string]struct {
		addr string
		l    *net.Listener
	}{"--public-http-addr": {o.HTTPAddr, &s.publicHTTP}, "--public-https-addr": {o.HTTPSAddr, &s.publicHTTPS}} {
		if at.addr == "" {
			continue
		}
		if *at.l, err = listen(ctx, flag, at.addr); err != nil {
			return err
		}
		s.onClose(func() { _ = (*at.l).Close() })
	}
	return nil
}

// wirePublic constructs the public edge.
func (s *service) wirePublic() {
	o := &s.opt.Public
	if !o.enabled() {
		return
	}
	s.public = public.New(public.Options{
		HTTP: s.publicHTTP, HTTPS: s.publicHTTPS, Certificates: s.publicCerts, TicketKeys: s.ticketKeys,
		FindEndpoint: s.publicEndpoint, HeldEndpoint: s.sessions.OnlinePublic,
		GrantedHosts: s.store.GrantedHosts, ServeEndpoint: s.servePublic,
		WriteError: func(w http.ResponseWriter, r *http.Request, code account.Code, msg string) {
			edge.WriteErrorPage(w, r, code.Status(), code, msg)
		},
		ProxyProtocol: o.ProxyProtocol, TrustedProxies: s.trustedProxies, MaxConns: o.MaxConns,
		MaxConnsPerClient: o.MaxConnsPerClient,
		Logger:            s.log,
	})
	s.meter.addPublicMetrics(s.public.Stats)
}

// warnUnreachable warns of an endpoint that an agent has bound, and that browsers cannot reach:
// their TLS handshake fails, which the agent does not see.
func (s *service) warnUnreachable(ep *account.Endpoint) {
	if ep.Bindings[0] != account.BindingPublic || ep.Scheme != "https" {
		return
	}
	switch {
	case s.publicCerts == nil && s.opt.Public.HTTPSAddr == "":
		s.log.Warn("a public https endpoint is bound, and there is no listener for it: set --public-https-addr",
			"url", ep.URL, "endpoint", ep.ID)
	case s.publicCerts != nil && !s.publicCerts.Covers(ep.Host):
		s.log.Warn("a public https endpoint is bound, and no certificate covers it: give one with --public-tls-cert",
			"url", ep.URL, "endpoint", ep.ID)
	}
}

// servePublic hands a request of a public client to the edge.
func (s *service) servePublic(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c public.Client) {
	s.edge.ServeHTTP(w, r, ep, edge.ClientInfo{
		ClientAddr: c.Addr.String(), ClientIP: c.Addr.Addr(), TLS: c.TLS, ServerName: c.ServerName, Forwarded: true,
		Abort: c.Abort, Upstreams: c.Upstreams, Geo: s.geoLookup(c.Addr.Addr()),
	})
}

// startPublic starts to serve the public listeners.
func (s *service) startPublic(serving context.Context) {
	if s.public == nil {
		return
	}
	if s.publicCerts != nil {
		s.tasks.Go(func() { s.publicCerts.Run(serving) })
	}
	s.public.Start(serving)
}

// stopPublic ends the connections that the drain has left, and closes the listeners.
func (s *service) stopPublic(ctx context.Context) {
	if s.public == nil {
		return
	}
	if s.edge.Live() > 0 { // the drain's time is up
		s.public.Close()
		return
	}
	if err := s.public.Shutdown(ctx); err != nil {
		s.log.Debug("public connections were cut", "err", err)
	}
}

// publicAddrs returns the addresses of the public listeners; nil = no such listener.
func (s *service) publicAddrs() (plain, secure net.Addr) {
	if s.publicHTTP != nil {
		plain = s.publicHTTP.Addr()
	}
	if s.publicHTTPS != nil {
		secure = s.publicHTTPS.Addr()
	}
	return plain, secure
}

// ownHosts are the hosts of the service's own URLs.
func (s *service) ownHosts() []string {
	hosts := []string{strings.ToLower(s.baseURL.Hostname())}
	if s.tunnelURL != nil {
		hosts = append(hosts, strings.ToLower(s.tunnelURL.Hostname()))
	}
	return hosts
}

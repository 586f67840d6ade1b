// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/public"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
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
	ACME              ACMEOptions
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
	case o.HTTPSAddr != "" && len(o.TLSCerts) == 0 && o.ACME.Directory == "":
		note(account.Invalid("--public-https-addr", o.HTTPSAddr,
			"needs certificates: give --public-tls-cert and --public-tls-key, or --acme-directory; there is no "+
				"self-signed one for the public"))
	case o.HTTPSAddr == "" && len(o.TLSCerts) > 0:
		note(account.Invalid("--public-tls-cert", strings.Join(o.TLSCerts, ","), "goes with --public-https-addr"))
	}
	o.ACME.parse(o, set, note)
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

// publicEdge is the part of the edge that browsers reach: its listeners and their certificates.
type publicEdge struct {
	set         *settings
	log         *slog.Logger
	http, https net.Listener
	certs       *public.Certificates // nil without --public-https-addr
	acme        *acme.Manager        // nil without --acme-directory
	server      *public.Server       // nil without --public-http-addr and --public-https-addr
	edge        *edge.Edge
	geo         *geo.Databases
}

func (p *publicEdge) open(ctx context.Context) (err error) {
	o := &p.set.Public
	if o.HTTPSAddr != "" {
		if p.certs, err = public.OpenCertificates(p.set.publicCertFiles, p.log); err != nil {
			return err
		}
		if p.https, err = listen(ctx, "--public-https-addr", o.HTTPSAddr); err != nil {
			return err
		}
	}
	if o.HTTPAddr != "" {
		p.http, err = listen(ctx, "--public-http-addr", o.HTTPAddr)
	}
	return err
}

func (p *publicEdge) wire(e *edge.Edge, t *targets, keys *ticketkeys.Keys, db *geo.Databases) {
	p.edge, p.geo = e, db
	o := &p.set.Public
	if !o.enabled() {
		return
	}
	if a := p.set.acme; a != nil {
		a.Store, a.Files = t.store, p.certs
		p.acme = acme.New(*a)
		p.certs.Order(p.acme)
	}
	p.server = public.New(public.Options{
		HTTP: p.http, HTTPS: p.https, Certificates: p.certs, ACME: p.acme, TicketKeys: keys,
		Endpoints: t, Handler: p,
		ProxyProtocol: o.ProxyProtocol, TrustedProxies: p.set.trustedProxies, MaxConns: o.MaxConns,
		MaxConnsPerClient: o.MaxConnsPerClient, Logger: p.log,
	})
}

// listenerURL returns the URL at which the listener answers for a public endpoint that an agent has
// bound; or it returns, and logs, why clients do not reach the endpoint.
func (p *publicEdge) listenerURL(ep *account.Endpoint, online *tunnelserver.Server) (url, problem string) {
	l := p.http
	if ep.Scheme == "https" {
		l = p.https
	}
	switch behindProxy := len(p.set.trustedProxies) > 0; {
	case l == nil && ep.Scheme == "https" && behindProxy && p.http != nil: // TLS ends at the proxy
		return ep.URL, ""
	case l == nil:
		problem = "the service has no public listener for " + ep.Scheme + ": set --public-" + ep.Scheme + "-addr there"
	case ep.Scheme == "https" && p.certs.Missing(ep.Host) != "":
		problem = p.certs.Missing(ep.Host)
	case behindProxy: // its port is the one that counts
		return ep.URL, ""
	default:
		return p.withListenerPort(ep, l, online), ""
	}
	p.log.Warn("a public endpoint is bound that no client reaches", "why", problem, "url", ep.URL, "endpoint", ep.ID)
	return "", problem
}

// withListenerPort returns the endpoint's URL with the listener's port, unless that leads to another
// endpoint of those online, or nowhere.
func (p *publicEdge) withListenerPort(ep *account.Endpoint, l net.Listener, online *tunnelserver.Server) string {
	seen := ep.ParsedURL()
	seen.Port = l.Addr().(*net.TCPAddr).Port
	other, _ := online.OnlinePublic(ep.Host, seen.Port)
	if ep.Scheme == "http" && other == nil && p.https != nil { // it is redirected there
		other, _ = online.OnlinePublic(ep.Host, account.DefaultPort("https"))
	}
	if ep.Port != account.DefaultPort(ep.Scheme) || other != nil {
		return ep.URL
	}
	return seen.String()
}

// WriteError implements public.Handler.
func (p *publicEdge) WriteError(w http.ResponseWriter, r *http.Request, code account.Code, msg string) {
	edge.WriteErrorPage(w, r, code.Status(), code, msg)
}

// ServeEndpoint implements public.Handler.
func (p *publicEdge) ServeEndpoint(w http.ResponseWriter, r *http.Request, ep *account.Endpoint, c public.Client) {
	p.edge.ServeHTTP(w, r, ep, edge.ClientInfo{
		ClientAddr: c.Addr.String(), ClientIP: c.Addr.Addr(), TLS: c.TLS, ServerName: c.ServerName, Forwarded: true,
		Port: c.Port, Aborter: c.Aborter, Upstreams: c.Upstreams, Locator: (*locator)(p.geo),
	})
}

func (p *publicEdge) run(serving context.Context, tasks *group) {
	if p.server == nil {
		return
	}
	if p.certs != nil {
		tasks.run(serving, p.certs.Run)
	}
	if p.acme != nil {
		tasks.run(serving, p.acme.Run)
	}
	p.server.Start(serving)
}

// stop ends the connections that the drain has left, and closes the listeners.
func (p *publicEdge) stop(ctx context.Context) {
	if p.server == nil {
		return
	}
	if p.edge.Live() > 0 { // the drain's time is up
		p.server.Close()
		return
	}
	if err := p.server.Shutdown(ctx); err != nil {
		p.log.Debug("public connections were cut", "err", err)
	}
}

func (p *publicEdge) close() {
	for _, l := range []net.Listener{p.http, p.https} {
		if l != nil {
			_ = l.Close()
		}
	}
}

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
	"github.com/fairlead-dev/fairlead/internal/service/edge"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
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

// publicEdge is the part of the edge that browsers reach: its listeners and their certificates.
type publicEdge struct {
	set         *settings
	log         *slog.Logger
	http, https net.Listener
	certs       *public.Certificates // nil without --public-https-addr
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
	p.server = public.New(public.Options{
		HTTP: p.http, HTTPS: p.https, Certificates: p.certs, TicketKeys: keys,
		Endpoints: t, Handler: p,
		ProxyProtocol: o.ProxyProtocol, TrustedProxies: p.set.trustedProxies, MaxConns: o.MaxConns,
		MaxConnsPerClient: o.MaxConnsPerClient, Logger: p.log,
	})
}

// warnUnreachable warns of an endpoint that an agent has bound, and that browsers cannot reach:
// their TLS handshake fails, which the agent does not see.
func (p *publicEdge) warnUnreachable(ep *account.Endpoint) {
	if ep.Bindings[0] != account.BindingPublic || ep.Scheme != "https" {
		return
	}
	switch {
	case p.certs == nil:
		p.log.Warn("a public https endpoint is bound, and there is no listener for it: set --public-https-addr",
			"url", ep.URL, "endpoint", ep.ID)
	case !p.certs.Covers(ep.Host):
		p.log.Warn("a public https endpoint is bound, and no certificate covers it: give one with --public-tls-cert",
			"url", ep.URL, "endpoint", ep.ID)
	}
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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// PublicOptions are the URL of a public endpoint and the sources of information.
type PublicOptions struct {
	URL     account.EndpointURL
	Account Account // nil where there is no API key
	// Server is the host of the service; "" = not known.
	Server    string
	Resolver  Resolver
	Roots     *x509.CertPool // nil = the system's
	UserAgent string
	Timeout   time.Duration // Timeout bounds each check.
}

// publicCheck checks the path of a call to a public endpoint from this machine.
type publicCheck struct {
	PublicOptions
	report *path.Report

	dns  PublicDNS
	conn string       // host:port that took a connection
	code account.Code // the code of the edge's answer; "" = the upstream's answer, or none
	text string       // the answer
	accountHas
}

// RunPublic checks each hop of a call to a public endpoint: from this machine, by one GET request
// as a browser sends it, and in the account.
func RunPublic(ctx context.Context, o PublicOptions) path.Report {
	r := path.Report{URL: o.URL.String()}
	c := &publicCheck{PublicOptions: o, report: &r}
	c.list(ctx)
	all := checks{
		path.HopDNS: c.checkDNS, path.HopListener: c.checkListener, path.HopAnswer: c.checkAnswer,
		path.HopEndpoint: c.checkEndpoint, path.HopDomain: c.checkDomain, path.HopAgent: c.checkAgent,
		path.HopUpstream: c.checkUpstream,
	}
	if o.URL.Scheme == "https" {
		all[path.HopCertificate] = c.checkCertificate
	}
	all.add(ctx, &r, path.ToPublicEndpoint())
	r.MarkSymptoms(path.ToPublicEndpoint())
	r.Conclude()
	return r
}

func (c *publicCheck) checkDNS(ctx context.Context) path.Hop {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	c.dns = ResolvePublic(ctx, c.Resolver, c.URL.Host, c.Server)
	try := c.dns.TryCommand(c.URL.String())
	if try != "" {
		try = "; until then, call it like this:\n" + try
	}
	if len(c.dns.Addrs) == 0 {
		h := path.Brokenf("make a DNS record for "+c.URL.Host+" that leads to the service's public listener"+try,
			"%s does not resolve on this machine", c.URL.Host)
		if len(c.dns.Server) > 0 { // the checks go on there
			h = h.AsUsable()
		}
		return h
	}
	return path.OKf("%s", cmp.Or(c.dns.Problem(), c.URL.Host+" resolves to "+joinAddrs(c.dns.Addrs)))
}

// checkListener connects to the host's addresses, or to the service's where DNS has none.
func (c *publicCheck) checkListener(ctx context.Context) path.Hop {
	addrs := c.dns.Addrs
	if len(addrs) == 0 {
		addrs = c.dns.Server
	}
	var errs []error
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, uint16(c.URL.Port)).String()
		conn, err := (&net.Dialer{Timeout: c.Timeout}).DialContext(ctx, "tcp", at)
		if err == nil {
			_ = conn.Close()
			c.conn = at
			return path.OKf("%s takes connections", at)
		}
		errs = append(errs, err)
	}
	return path.Brokenf(fmt.Sprintf("see that fairlead-server runs with --public-%s-addr and that port %d leads there "+
		"(balancer, Service, docker -p), or call the port that does", c.URL.Scheme, c.URL.Port),
		"nothing answers: %s", strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}

func (c *publicCheck) tlsConfig() *tls.Config {
	return &tls.Config{ServerName: c.URL.Host, RootCAs: c.Roots, MinVersion: tls.VersionTLS12}
}

func (c *publicCheck) checkCertificate(ctx context.Context) path.Hop {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: c.tlsConfig()}).DialContext(ctx, "tcp", c.conn)
	if err == nil {
		defer func() { _ = conn.Close() }()
		leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		return path.OKf("valid for %s until %s", c.URL.Host, leaf.NotAfter.UTC().Format(time.DateOnly)).
			With("issued by " + leaf.Issuer.String())
	}
	const give = "give the service a certificate for the host, with --public-tls-cert; one that it orders itself, " +
		"with --acme-directory, takes seconds, or its log has the reason"
	fix := map[trust.Problem]string{
		trust.OutOfDate: "renew the certificate in the files of --public-tls-cert; the service reads them again",
		trust.WrongHost: give,
		trust.UnknownAuthority: "put the whole chain into the file of --public-tls-cert; if the authority is your " +
			"own, trust it on this machine, or name it with --ca-file",
	}[trust.ProblemOf(err)]
	if strings.Contains(err.Error(), "unrecognized name") {
		return path.Brokenf(give, "the listener has no certificate for %s", c.URL.Host)
	}
	return path.Brokenf(cmp.Or(fix, "see that this port is the one of --public-https-addr"), "%v", err)
}

// maxAnswer is how much of a page of the edge is read.
const maxAnswer = 64 << 10

// checkAnswer sends a GET request for the root, and reads who answers it.
func (c *publicCheck) checkAnswer(ctx context.Context) path.Hop {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tlsConfig(),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.conn)
		}}
	client := &http.Client{Transport: transport, Timeout: c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL.String()+"/", nil)
	if err != nil {
		return path.Unknownf("%v", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.UserAgent)
	res, err := client.Do(req)
	if err != nil {
		return path.Brokenf("look at the service's log, and at what stands before it", "no answer to GET /: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	c.code, c.text = account.Code(res.Header.Get(account.CodeHeader)), "GET / is answered with "+
		strconv.Itoa(res.StatusCode)
	if c.code == "" {
		return path.OKf("%s", c.text)
	}
	var page account.ErrorBody
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = json.Unmarshal(text, &page)
	c.text = fmt.Sprintf("%s and %s: %s", c.text, c.code, page.Msg)
	switch c.code {
	case account.CodeEndpointUnknown:
		return path.Brokenf("see that the name leads to the right service, and that scheme and port are the "+
			"endpoint's; after fairlead login the account is asked for it", "%s", c.text)
	case account.CodeMisdirected, account.CodeBadRequest, account.CodeUnavailable:
		return path.Brokenf("look at what stands between this machine and the listener, and at the service's log", "%s",
			c.text)
	}
	return path.OKf("the edge has the endpoint; %s", c.text)
}

// checkUpstream tells what the answer says of the upstream.
func (c *publicCheck) checkUpstream(context.Context) path.Hop {
	switch c.code {
	case "":
		return path.OKf("%s", c.text)
	case account.CodeUpstreamUnreachable, account.CodeUpstreamBroken:
		return path.Brokenf("start the upstream, or correct the address that the agent forwards to; the agent's "+
			"screen has the details", "%s", c.text)
	case account.CodeAgentSilent:
		return path.Brokenf("look at the agent's machine: its network, and whether its upstream takes connections",
			"%s", c.text)
	case account.CodeEndpointOffline:
		return path.NotChecked()
	}
	return path.Unknownf("the request did not get there: %s", c.text)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

const (
	attemptTimeout = 5 * time.Second
	retryInterval  = 500 * time.Millisecond
)

var errNoTunnels = errors.New("it accepts no tunnels: does something in front of it terminate TLS?")

// healthcheck checks a service as its clients use it, without a credential.
type healthcheck struct {
	url       string
	connect   string // host:port to connect to instead of the URL's
	trust     trust.Options
	presented bool          // trust the authority that the service presents
	timeout   time.Duration // for all attempts
}

func newHealthcheck(c console) *cobra.Command {
	var h healthcheck
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that a service answers as its clients need it",
		Long: `Check that a service answers as its clients need it: its certificate is valid for the URL's host
name, its API answers, and it accepts the tunnels of agents and forwarders. No credential is sent.
` + "`helm test`" + ` runs it.`,
		Example: `  fairlead-server healthcheck --url https://fairlead.example.net:8443 --ca-file ca.crt
  fairlead-server healthcheck --url https://fairlead.example.net --connect 10.0.0.5:8443 --timeout 1m`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := account.ParseServerURL("--url", h.url)
			if err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(h.connect); h.connect != "" && err != nil {
				return account.Invalid("--connect", h.connect, "must be HOST:PORT")
			}
			if h.presented && h.trust.CAFile+h.trust.CASHA256 != "" {
				return cli.Usagef("--ca-presented excludes --ca-file and --ca-sha256: give one of them")
			}
			leaf, err := h.run(cmd.Context(), base)
			if err != nil {
				return fmt.Errorf("checking %s: %w%s", base, err, h.remedy(err))
			}
			_, err = fmt.Fprintf(c.out,
				"%s answers: API and tunnels, certificate good until %s\nchecked by fairlead-server %s\n", base,
				date(leaf.NotAfter), version.String())
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&h.url, "url", "", "`URL` by which clients reach the API, https://HOST[:PORT]")
	f.StringVar(&h.connect, "connect", "",
		"`HOST:PORT` to connect to instead of the URL's, for example the Service of a cluster")
	f.StringVar(&h.trust.CAFile, "ca-file", "",
		"PEM `FILE` of the authority, or of the certificate, that the service has; default: the system's authorities")
	f.StringVar(&h.trust.CASHA256, "ca-sha256", "", "`FINGERPRINT` of the authority")
	f.BoolVar(&h.presented, "ca-presented", false,
		"trust whichever authority the service presents; host name and dates are verified")
	f.DurationVar(&h.timeout, "timeout", 10*time.Second, "how long to try again")
	return cmd
}

// remedy returns what to do about a service that is not trusted, or "".
func (h *healthcheck) remedy(err error) string {
	switch trust.ProblemOf(err) {
	case trust.UnknownAuthority:
		if h.trust.CAFile == "" && !h.presented {
			return "; give its authority with --ca-file or --ca-sha256 (fairlead-server ca), or trust what it " +
				"presents with --ca-presented"
		}
		return "; compare --ca-file with what the server has (fairlead-server ca)"
	case trust.WrongHost:
		return "; ask it by a name that its certificate holds, or add this name to it (fairlead-server --tls-san)"
	}
	return ""
}

// run retries until everything answers or the time-out has passed. A certificate that is not
// trusted ends it at once.
func (h *healthcheck) run(ctx context.Context, base *url.URL) (*x509.Certificate, error) {
	config, err := h.tls(base.Hostname())
	if err != nil {
		return nil, err
	}
	deadline := time.NewTimer(h.timeout)
	defer deadline.Stop()
	for {
		leaf, err := h.attempt(ctx, base, config)
		if err == nil || trust.ProblemOf(err) != trust.NoProblem {
			return leaf, err
		}
		select {
		case <-time.After(retryInterval):
		case <-deadline.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (h *healthcheck) tls(host string) (*tls.Config, error) {
	o := h.trust
	o.Host = host
	config, err := o.ClientConfig()
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	config.ServerName = host
	if h.presented {
		// replaced by VerifyConnection below, which verifies chain, host name and dates
		config.InsecureSkipVerify = true
		config.VerifyConnection = verifyPresented
	}
	return config, nil
}

// verifyPresented trusts the authorities that the chain itself holds.
func verifyPresented(cs tls.ConnectionState) error {
	roots := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		if c.IsCA {
			roots.AddCert(c)
		}
	}
	if _, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: cs.ServerName, Roots: roots,
		Intermediates: roots}); err != nil {
		return fmt.Errorf("verifying server: %w", err)
	}
	return nil
}

// attempt makes the TLS handshake of a tunnel, then asks the API.
func (h *healthcheck) attempt(ctx context.Context, base *url.URL, config *tls.Config) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	dial := func(protocols ...string) (*tls.Conn, error) {
		own := config.Clone()
		own.NextProtos = protocols
		conn, err := (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", h.address(base))
		if err != nil {
			return nil, err
		}
		return conn.(*tls.Conn), nil
	}
	tunnels, err := dial(tunnel.ALPN)
	// crypto/tls has no type for a peer's alert
	if err != nil && strings.Contains(err.Error(), "no application protocol") {
		return nil, errNoTunnels
	}
	if err != nil {
		return nil, err
	}
	state := tunnels.ConnectionState()
	_ = tunnels.Close() // nothing was sent
	if state.NegotiatedProtocol != tunnel.ALPN {
		return nil, errNoTunnels
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return dial("http/1.1") },
	}}
	return state.PeerCertificates[0], askAPI(ctx, client, base)
}

// askAPI sends a request without a key and expects the refusal of fairlead-server.
func askAPI(ctx context.Context, client *http.Client, base *url.URL) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("endpoints").String(), nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var refusal account.ErrorBody
	err = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&refusal)
	if err != nil || res.StatusCode != http.StatusUnauthorized || refusal.Code != account.CodeNoCredential {
		return fmt.Errorf("the API answers %s, which is not how fairlead-server refuses a request without a key",
			res.Status)
	}
	return nil
}

func (h *healthcheck) address(base *url.URL) string {
	if h.connect != "" {
		return h.connect
	}
	port := cmp.Or(base.Port(), "443")
	return net.JoinHostPort(base.Hostname(), port)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/acme"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/public"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// certificates are those whose end stops something. It is a prometheus.Collector of their ends, and
// implements dashboard.Certificates.
type certificates struct {
	service *pki.Source
	public  *public.Certificates // nil = none
	acme    *acme.Manager        // nil = none
	logins  *loginCertificates
}

var certificateExpiry = prometheus.NewDesc("fairlead_server_certificate_expiry_timestamp_seconds",
	"When a certificate in use expires: service (API and tunnels), authority (the service's own), "+
		"public (the first of the public listeners' files), acme (the first of those ordered for public endpoints), "+
		"identity_provider (the first of the providers in traffic policies; one that has expired counts for another "+
		"day).", []string{"use"}, nil)

var acmeRemaining = prometheus.NewDesc("fairlead_server_acme_remaining_life_ratio",
	"The least share of its life that a certificate ordered for a public endpoint has left, 1 without any; they are "+
		"renewed at a third.", nil, nil)

// Describe implements prometheus.Collector.
func (c *certificates) Describe(to chan<- *prometheus.Desc) {
	to <- certificateExpiry
	to <- acmeRemaining
}

// Collect implements prometheus.Collector.
func (c *certificates) Collect(to chan<- prometheus.Metric) {
	ends := map[string]time.Time{"service": c.service.Leaf().NotAfter,
		"identity_provider": c.logins.firstExpiry(time.Now())}
	if ca := c.service.CA(); ca != nil {
		ends["authority"] = ca.NotAfter
	}
	if c.public != nil {
		ends["public"] = c.public.FirstExpiry()
	}
	remaining := 1.0
	if c.acme != nil {
		ends["acme"], remaining = c.acme.Life(time.Now())
	}
	to <- prometheus.MustNewConstMetric(acmeRemaining, prometheus.GaugeValue, remaining)
	for use, end := range ends {
		if !end.IsZero() {
			to <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(end.Unix()), use)
		}
	}
}

// EndingSoon implements dashboard.Certificates.
func (c *certificates) EndingSoon(e *account.Endpoint, now time.Time) (ends []dashboard.CertificateEnd) {
	if c.public != nil && e.Scheme == "https" && slices.Contains(e.Bindings, account.BindingPublic) {
		if leaf := c.public.EndingSoon(e.Host, now); leaf != nil {
			ends = append(ends, dashboard.CertificateEnd{Name: leaf.DNSNames[0], NotAfter: leaf.NotAfter})
		}
	}
	if one, ok := c.logins.endingSoon(e.ID, now); ok {
		ends = append(ends, dashboard.CertificateEnd{Name: one.provider, NotAfter: one.notAfter, Provider: true})
	}
	return ends
}

const (
	loginCertificatesInterval = 10 * time.Minute
	loginCertificateWarning   = 30 * 24 * time.Hour // before the end
	loginCertificateExpired   = 24 * time.Hour      // how long the metric shows one that has expired
	policiesAtOnce            = 100
)

// loginCertificate is the end of the certificates of the identity provider of an endpoint's policy.
type loginCertificate struct {
	provider, url string
	notAfter      time.Time
}

// loginCertificates holds when the certificates of identity providers expire that the traffic
// policies of endpoints name. It is safe for concurrent use, but for run.
type loginCertificates struct {
	store  *store.Store
	logins *login.Handler
	log    *slog.Logger

	byEndpoint atomic.Pointer[map[string]loginCertificate] // nil until they were read
	warned     map[loginCertificate]bool                   // only run touches it
}

// run reads the policies again and again until ctx is done. While the database does not answer, what
// was known stays.
func (c *loginCertificates) run(ctx context.Context) {
	c.warned = map[loginCertificate]bool{}
	for ok := true; ok; ok = timer.Sleep(ctx, loginCertificatesInterval) {
		if found, err := c.read(ctx); err == nil {
			c.warn(found, time.Now())
			c.byEndpoint.Store(&found)
		} else if ctx.Err() == nil {
			c.log.Warn("the certificates of identity providers could not be read from the traffic policies", "err", err)
		}
	}
}

func (c *loginCertificates) read(ctx context.Context) (map[string]loginCertificate, error) {
	found := map[string]loginCertificate{}
	for last := ""; ; {
		some, err := c.store.PoliciesAfter(ctx, last, policiesAtOnce)
		if err != nil {
			return nil, err
		}
		for i := range some {
			c.readPolicy(&some[i], found)
		}
		if len(some) < policiesAtOnce {
			return found, nil
		}
		last = some[len(some)-1].ID
	}
}

// readPolicy adds the certificate of the login action of an endpoint's policy, if there is one.
func (c *loginCertificates) readPolicy(e *account.Endpoint, found map[string]loginCertificate) {
	if !strings.Contains(e.TrafficPolicy, string(trafficpolicy.LoginSAML)) { // the only kind with certificates
		return
	}
	_, _ = trafficpolicy.Compile(e.TrafficPolicy, trafficpolicy.Options{Scheme: e.Scheme, Binding: e.Bindings[0],
		Stored: true, ValidateLogin: func(config *trafficpolicy.LoginConfig) error {
			if name, end := c.logins.CertificateEnd(e.AccountID, config); !end.IsZero() {
				found[e.ID] = loginCertificate{name, e.URL, end}
			}
			return nil
		}}) // the edge reports a policy that does not compile
}

// warn logs each certificate that expires soon, or has expired, once.
func (c *loginCertificates) warn(found map[string]loginCertificate, now time.Time) {
	for id, one := range found {
		if now.Add(loginCertificateWarning).After(one.notAfter) && !c.warned[one] {
			c.warned[one] = true
			c.log.Warn("the certificates of an identity provider expire, and logins fail from then on", "provider",
				one.provider, "endpoint", id, "url", one.url, "not_after", one.notAfter)
		}
	}
}

// endingSoon returns the certificate of an endpoint if it expires within loginCertificateWarning, or
// has expired.
func (c *loginCertificates) endingSoon(endpointID string, now time.Time) (one loginCertificate, ok bool) {
	if known := c.byEndpoint.Load(); known != nil {
		one, ok = (*known)[endpointID]
	}
	return one, ok && now.Add(loginCertificateWarning).After(one.notAfter)
}

// firstExpiry returns the earliest end that is not over for longer than loginCertificateExpired; zero
// = none.
func (c *loginCertificates) firstExpiry(now time.Time) (first time.Time) {
	known := c.byEndpoint.Load()
	if known == nil {
		return first
	}
	for _, one := range *known {
		if one.notAfter.After(now.Add(-loginCertificateExpired)) && (first.IsZero() || one.notAfter.Before(first)) {
			first = one.notAfter
		}
	}
	return first
}

// ACMEOptions let the service order the certificates of public endpoints. Without a directory there
// are only those in files.
type ACMEOptions struct {
	Directory string // Directory is the https URL of the authority's directory.
	Email     string // Email is the contact of the account; "" = none.
	AgreeTOS  bool   // AgreeTOS accepts the authority's terms of service.
	CAFile    string // CAFile has authorities for the directory's own certificate; "" = the system's.
}

// parse sets what a Manager needs, and notes every broken rule.
func (o *ACMEOptions) parse(edge *PublicOptions, set *settings, note func(error)) {
	if o.Directory == "" {
		if *o != (ACMEOptions{}) {
			note(account.Invalid("--acme-directory", "", "is required with the other --acme flags"))
		}
		return
	}
	if u, err := url.Parse(o.Directory); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		note(account.Invalid("--acme-directory", account.Shorten(o.Directory), "must be the https URL of an ACME "+
			"directory, such as https://acme-v02.api.letsencrypt.org/directory"))
	}
	if !o.AgreeTOS {
		note(account.Invalid("--acme-agree-tos", "false", "read the terms of service of the authority of "+
			"--acme-directory, and accept them with this flag"))
	}
	if edge.HTTPSAddr == "" {
		note(account.Invalid("--acme-directory", o.Directory, "goes with --public-https-addr"))
	}
	if a, err := mail.ParseAddress(o.Email); o.Email != "" && (err != nil || a.Address != o.Email) {
		note(account.Invalid("--acme-email", account.Shorten(o.Email), "must be an address such as ops@example.com"))
	}
	config, err := trust.Options{CAFile: o.CAFile}.ClientConfig()
	if err != nil {
		note(account.Invalid("--acme-ca-file", o.CAFile, err.Error()))
		return
	}
	config.MinVersion = tls.VersionTLS12
	set.acme = &acme.Options{Directory: o.Directory, Email: o.Email, TLS: config, HTTP01: edge.HTTPAddr != "",
		UserAgent: "fairlead-server/" + version.String(), Logger: set.Logger}
}

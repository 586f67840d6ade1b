// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
)

// certificates are those whose end stops something. It is a prometheus.Collector of their ends, and
// implements dashboard.Certificates.
type certificates struct {
	service *pki.Source
	public  *public.Certificates // nil = none
	logins  *loginCertificates
}

var certificateExpiry = prometheus.NewDesc("fairlead_server_certificate_expiry_timestamp_seconds",
	"When a certificate in use expires: service (API and tunnels), authority (the service's own), "+
		"public (the first of the public listeners'), identity_provider (the first of the providers in traffic "+
		"policies; one that has expired counts for another day).", []string{"use"}, nil)

// Describe implements prometheus.Collector.
func (c *certificates) Describe(to chan<- *prometheus.Desc) { to <- certificateExpiry }

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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Certificates are the certificates on which endpoints depend.
type Certificates interface {
	// EndingSoon returns the certificates of an endpoint that expire soon, or have expired.
	EndingSoon(e *account.Endpoint, now time.Time) []CertificateEnd
}

// CertificateEnd is the end of a certificate.
type CertificateEnd struct {
	Name     string // the certificate's or provider's, as pages show it
	NotAfter time.Time
	Provider bool // Provider is set for the certificate of an identity provider.
}

// endingCertificates adds each certificate to a summary once, however many endpoints depend on it.
type endingCertificates struct {
	of   Certificates // nil = none
	now  time.Time
	seen map[CertificateEnd]bool
}

func (c *endingCertificates) add(e *account.Endpoint, m *summary) {
	if c.of == nil {
		return
	}
	for _, end := range c.of.EndingSoon(e, c.now) {
		if c.seen[end] {
			continue
		}
		c.seen[end] = true
		p := problem{Kind: "Certificate expires", Text: end.Name, Href: objectLink(e.ID), Since: end.NotAfter,
			Detail: "Clients refuse " + e.URL + " then, and every other host of it. Renew the certificate of the " +
				"public listeners.", Serious: end.NotAfter.Before(c.now.Add(24 * time.Hour))}
		if end.Provider {
			p.Detail = "Logins at " + e.URL + ", and wherever this identity provider is asked, fail then. " +
				"Let the provider " +
				"make a new certificate, and put its new metadata into the traffic policy."
		}
		m.addProblem(p)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// addCertificateMetrics registers the ends of the certificates in use.
func (m *metrics) addCertificateMetrics(s *service) {
	gauge := func(use string, notAfter func() time.Time) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "fairlead_server",
			Name: "certificate_expiry_timestamp_seconds",
			Help: "When a certificate in use expires: service (API and tunnels), authority (the service's own), " +
				"public (the first of the public listeners').",
			ConstLabels: prometheus.Labels{"use": use}},
			func() float64 { return float64(notAfter().Unix()) }))
	}
	gauge("service", func() time.Time { return s.certs.Leaf().NotAfter })
	if ca := s.certs.CA(); ca != nil {
		gauge("authority", func() time.Time { return ca.NotAfter })
	}
	if s.publicCerts != nil {
		gauge("public", s.publicCerts.FirstExpiry)
	}
}

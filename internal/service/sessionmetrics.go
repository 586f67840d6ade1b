// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
)

// sessionMetrics counts logins and sessions of people. No label names a person.
type sessionMetrics struct {
	revocationSeconds                    prometheus.Histogram
	ended, cutRequests, logins, checks   *prometheus.CounterVec
	checkLive, checkNone, checkError     prometheus.Counter
	loginSession, loginAgain, loginError prometheus.Counter
}

// Reasons for which requests are cut, beside the account.RevokedBy….
const (
	expiredReason = "expired"      // the session's time is up, or another process has revoked it
	peerReason    = "other server" // another replica has ended the session
	leaseReason   = "lease"        // the store has not answered for long
)

func newSessionMetrics(registry *prometheus.Registry) *sessionMetrics {
	const ns = "fairlead_server"
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, []string{label})
	}
	m := &sessionMetrics{
		revocationSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: ns,
			Name:    "session_revocation_seconds",
			Help:    "Time from the call to the last cut of what was served.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}}),
		ended: counter("application_sessions_ended_total",
			"Sessions of people that were revoked; of those that expired, the ones with requests under way.", "reason"),
		cutRequests: counter("application_requests_cut_total",
			"Requests under way that were cut because their session had ended, or with the lease of a replica.",
			"reason"),
		logins: counter("logins_total",
			"Logins that an identity provider has confirmed, by what became of them: session, again (asked anew "+
				"after a "+
				"revocation), error.", "outcome"),
		checks: counter("application_session_checks_total", "Look-ups of sessions for requests: live, none, error.",
			"outcome"),
	}
	// from 0 on
	for _, reason := range []string{account.RevokedByAdmin, account.RevokedByLogout, account.RevokedByBackChannel,
		expiredReason} {
		m.ended.WithLabelValues(reason)
		m.cutRequests.WithLabelValues(reason)
	}
	m.cutRequests.WithLabelValues(peerReason)
	m.cutRequests.WithLabelValues(leaseReason)
	m.loginSession, m.loginAgain, m.loginError = m.logins.WithLabelValues("session"), m.logins.WithLabelValues("again"),
		m.logins.WithLabelValues("error")
	m.checkLive, m.checkNone, m.checkError = m.checks.WithLabelValues("live"), m.checks.WithLabelValues("none"),
		m.checks.WithLabelValues("error")
	registry.MustRegister(m.revocationSeconds, m.ended, m.cutRequests, m.logins, m.checks)
	return m
}

// addGauges adds gauges of what is being served.
func (m *sessionMetrics) addGauges(registry *prometheus.Registry, of *live.Registry) {
	const ns = "fairlead_server"
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: "application_sessions_served",
			Help: "Sessions of people with requests under way."}, func() float64 {
			sessions, _ := of.Counts()
			return float64(sessions)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: "application_requests_open",
			Help: "Requests under way of people's sessions, upgraded connections among them."}, func() float64 {
			_, requests := of.Counts()
			return float64(requests)
		}))
}

func (m *sessionMetrics) countRevoked(reason string, sessions, requests int, took time.Duration) {
	m.revocationSeconds.Observe(took.Seconds())
	m.ended.WithLabelValues(reason).Add(float64(sessions))
	m.cutRequests.WithLabelValues(reason).Add(float64(requests))
}

func (m *sessionMetrics) countExpired(sessions, requests int) {
	m.ended.WithLabelValues(expiredReason).Add(float64(sessions))
	m.cutRequests.WithLabelValues(expiredReason).Add(float64(requests))
}

// countCut counts requests that were cut without the end of a session here.
func (m *sessionMetrics) countCut(reason string, requests int) {
	m.cutRequests.WithLabelValues(reason).Add(float64(requests))
}

// meteredLogins counts what login actions ask the store.
type meteredLogins struct {
	account.Logins
	metrics *sessionMetrics
}

// Login implements account.Logins.
func (c *meteredLogins) Login(ctx context.Context, accountID string, l account.NewLogin) (*account.LiveSession, error) {
	s, err := c.Logins.Login(ctx, accountID, l)
	switch {
	case err == nil:
		c.metrics.loginSession.Inc()
	case account.CodeOf(err) == account.CodeLoginAgain:
		c.metrics.loginAgain.Inc()
	default:
		c.metrics.loginError.Inc()
	}
	return s, err
}

// LiveSession implements account.Logins.
func (c *meteredLogins) LiveSession(
	ctx context.Context, accountID string, tokenHash []byte,
) (*account.LiveSession, error) {
	s, err := c.Logins.LiveSession(ctx, accountID, tokenHash)
	switch {
	case err == nil:
		c.metrics.checkLive.Inc()
	case account.CodeOf(err) == account.CodeNotFound:
		c.metrics.checkNone.Inc()
	default:
		c.metrics.checkError.Inc()
	}
	return s, err
}

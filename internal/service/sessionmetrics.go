// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// sessionMetrics counts logins and sessions of people. No label names a person.
type sessionMetrics struct {
	revocationSeconds                    prometheus.Histogram
	ended, cutRequests                   *prometheus.CounterVec
	checkLive, checkNone, checkError     prometheus.Counter
	loginSession, loginAgain, loginError prometheus.Counter
}

// Reasons for which requests are cut, beside the account.RevokedBy….
const (
	expiredReason = "expired"      // the session's time is up, or another process has revoked it
	peerReason    = "other server" // another replica has ended the session
	leaseReason   = "lease"        // the store has not answered for long
)

func newSessionMetrics(r metricsRegistry) *sessionMetrics {
	logins := r.counters("logins_total", "Logins that an identity provider has confirmed, by what became of them: "+
		"session, again (asked anew after a revocation), error.", "outcome")
	checks := r.counters("application_session_checks_total",
		"Look-ups of sessions for requests: live, none, error.", "outcome")
	m := &sessionMetrics{
		revocationSeconds: r.histogram("session_revocation_seconds",
			"Time from a revocation's call to the last cut of what was served.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5),
		ended: r.counters("application_sessions_ended_total",
			"Sessions of people that ended: revoked, logout, back-channel logout, or expired with requests under way.",
			"reason"),
		cutRequests: r.counters("application_requests_cut_total",
			"Requests under way that were cut because their session had ended, by its reason, on another replica "+
				"(other server), or because the database has not answered this one (lease).",
			"reason"),
		loginSession: logins.WithLabelValues("session"), loginAgain: logins.WithLabelValues("again"),
		loginError: logins.WithLabelValues("error"), checkLive: checks.WithLabelValues("live"),
		checkNone: checks.WithLabelValues("none"), checkError: checks.WithLabelValues("error"),
	}
	// from 0 on
	for _, reason := range []string{account.RevokedByAdmin, account.RevokedByLogout, account.RevokedByBackChannel,
		expiredReason} {
		m.ended.WithLabelValues(reason)
		m.cutRequests.WithLabelValues(reason)
	}
	m.cutRequests.WithLabelValues(peerReason)
	m.cutRequests.WithLabelValues(leaseReason)
	return m
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

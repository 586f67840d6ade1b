// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

const (
	problemsShown = 20
	eventsShown   = 10
	// summaryTTL is how long a summary is cached: making it reads all endpoints.
	summaryTTL = 2 * time.Second
)

// objectCount is a number of objects; with More there are at least N.
type objectCount struct {
	N    int
	More bool
}

// String returns the number as the overview shows it.
func (n objectCount) String() string {
	if n.More {
		return thousands(n.N) + "+"
	}
	return thousands(n.N)
}

// problem is a problem that an account has now.
type problem struct {
	Kind, Text, Href string
	Detail           string
	Since            time.Time // zero = not known
	Serious          bool
}

// summary is what an account has, and its problems.
type summary struct {
	Endpoints, OfflineEndpoints        objectCount
	Agents, Operators, SilentOperators objectCount
	Backends, FailedOverBackends       objectCount
	Identities, LiveSessions           objectCount
	Problems                           []problem // the first problemsShown
	MoreProblems                       int       // problems that are not in Problems
}

func (m *summary) addProblem(p problem) {
	if len(m.Problems) == problemsShown {
		m.MoreProblems++
		return
	}
	m.Problems = append(m.Problems, p)
}

// cachedSummary is an account's summary, which concurrent requests share for summaryTTL. It is locked
// while the summary is made.
type cachedSummary struct {
	mu      sync.Mutex
	madeAt  time.Time
	summary *summary // nil until it is made
}

// overviewHandlers serve the overview.
type overviewHandlers struct {
	store interface {
		account.Endpoints
		account.Operators
		account.TunnelSessions
		account.Identities
		account.AuditLog
	}
	matchSelectors httpkit.SelectorCompiler
	backends       *backendReader
	credentials    []*credentialKind
	traffic        Traffic      // traffic is nil where none is recorded.
	certificates   Certificates // certificates is nil where there are none.
	replicas       Replicas     // replicas is nil where one server is alone.
	summaries      sync.Map     // summaries are *cachedSummary by account.
}

type overviewPage struct {
	*summary
	Events   []eventRow
	Replicas []Replica
}

// Replica is one of the servers of the database, as the server that shows the page sees it.
type Replica struct {
	ID, Version string
	Own         bool // it shows the page
	Linked      bool // the server that shows the page has a link to it
	Draining    bool // about to stop
	RoundTrip   time.Duration
}

// RoundTripText returns the time to the replica and back.
func (r Replica) RoundTripText() string {
	if r.RoundTrip == 0 {
		return orDash("")
	}
	return r.RoundTrip.Round(10 * time.Microsecond).String()
}

func (h *overviewHandlers) show(c *call) error {
	if !c.hasScope(readScopes...) {
		http.Redirect(c.Writer, c.Request, identitiesPath, http.StatusSeeOther)
		return nil
	}
	m, err := h.summary(c)
	if err != nil {
		return err
	}
	recent, err := h.store.AuditEvents(c.Context(), c.AccountID(), account.AuditFilter{},
		account.Page{Limit: eventsShown})
	if err != nil {
		return err
	}
	p := overviewPage{summary: m}
	if h.replicas != nil {
		p.Replicas = h.replicas.Replicas()
	}
	for _, e := range recent.Events {
		p.Events = append(p.Events, eventRow{e})
	}
	return c.show(http.StatusOK, view{Page: "overview", Title: "Overview", Nav: "", Live: "endpoints audit", Poll: true,
		Data: p})
}

func (h *overviewHandlers) summary(c *call) (*summary, error) {
	found, _ := h.summaries.LoadOrStore(c.AccountID(), &cachedSummary{})
	cached := found.(*cachedSummary)
	cached.mu.Lock()
	defer cached.mu.Unlock()
	now := c.now()
	if cached.summary != nil && now.Sub(cached.madeAt) < summaryTTL {
		return cached.summary, nil
	}
	m := &summary{}
	for _, add := range []func(*call, *summary) error{h.addEndpoints, h.addOperators, h.addBackends,
		h.addAgents, h.addIdentities, h.addCredentials} {
		if err := add(c, m); err != nil {
			return nil, err
		}
	}
	cached.madeAt, cached.summary = now, m
	return m, nil
}

func (h *overviewHandlers) addEndpoints(c *call, m *summary) error {
	rates := map[traffic.Key]traffic.Rate{}
	if h.traffic != nil {
		rates, _ = h.traffic.Rates(c.Context(), c.AccountID())
	}
	seen := map[CertificateEnd]bool{}
	more, err := eachEndpoint(c, h.store, account.EndpointFilter{}, func(e *account.Endpoint) bool {
		m.Endpoints.N++
		h.addCertificates(c, m, e, seen)
		if e.Status != account.StatusOffline {
			m.addFailing(e, rateText{rates[traffic.Key(e.ID)]})
			return true
		}
		m.OfflineEndpoints.N++
		p := problem{Kind: "Endpoint offline", Text: e.URL, Href: objectLink(e.ID), Detail: sentence(unserved(e)),
			Serious: true}
		if e.OfflineSince != nil {
			p.Since = *e.OfflineSince
		}
		m.addProblem(p)
		return true
	})
	m.Endpoints.More, m.OfflineEndpoints.More = more, more && m.OfflineEndpoints.N > 0
	return err
}

// addFailing adds an endpoint of which a tenth of the requests fails.
func (m *summary) addFailing(e *account.Endpoint, rate rateText) {
	if rate.FailingPerSecond == 0 || rate.FailingPerSecond < rate.PerSecond/10 {
		return
	}
	m.addProblem(problem{Kind: "Requests fail", Text: e.URL,
		Href:   Path + "endpoints/" + e.ID + "/traffic?requests=failing",
		Detail: sentence(rate.failed()), Serious: rate.FailingPerSecond >= rate.PerSecond/2})
}

func (h *overviewHandlers) addOperators(c *call, m *summary) error {
	page, more, err := h.store.ListOperators(c.Context(), c.AccountID(), account.Page{Limit: account.MaxPageLimit})
	m.Operators = objectCount{len(page), more}
	for _, o := range page {
		row := newOperatorRow(o, c.now())
		if row.Silent {
			m.SilentOperators.N++
			m.addProblem(problem{Kind: "Operator silent", Text: row.Name(), Href: objectLink(o.ID),
				Detail: "No sign of life from cluster " + orDash(o.Deployment.ClusterName) + ".", Since: o.LastSeenAt,
				Serious: true})
		}
		if !row.Binds() {
			continue
		}
		if _, err := h.matchSelectors(row.Selectors()); err != nil {
			m.addProblem(problem{Kind: "Selector broken", Text: row.Name(), Href: objectLink(o.ID),
				Detail: sentence(account.FirstRule(err)), Serious: true})
		}
	}
	return err
}

func (h *overviewHandlers) addBackends(c *call, m *summary) error {
	for _, kind := range account.BackendKinds() {
		page, more, err := h.backends.store.ListBackends(c.Context(), c.AccountID(), kind,
			account.Page{Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		m.Backends.N += len(page)
		m.Backends.More = m.Backends.More || more
		if kind != account.BackendFailover {
			continue
		}
		rows, err := h.backends.rows(c, page...)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.FailedOver() {
				m.FailedOverBackends.N++
				m.addProblem(problem{Kind: "Backend failed over", Text: row.Name(), Href: objectLink(row.ID),
					Detail: sentence(row.serving() + " serves")})
			}
		}
	}
	return nil
}

func (h *overviewHandlers) addAgents(c *call, m *summary) error {
	page := account.Page{Limit: account.MaxPageLimit}
	agents, more, err := h.store.ListTunnelSessions(c.Context(), c.AccountID(), page)
	m.Agents = objectCount{len(agents), more}
	return err
}

func (h *overviewHandlers) addIdentities(c *call, m *summary) error {
	users, more, err := h.store.Users(c.Context(), c.AccountID(), account.UserFilter{},
		account.Page{Limit: account.MaxPageLimit})
	m.Identities = objectCount{len(users), more}
	m.LiveSessions.More = more
	for _, u := range users {
		m.LiveSessions.N += u.Sessions
	}
	return err
}

// addCredentials adds the credentials that expire soon as problems.
func (h *overviewHandlers) addCredentials(c *call, m *summary) error {
	for _, kind := range h.credentials {
		credentials, _, err := kind.store.list(c, account.Page{Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		for _, one := range credentials {
			if one.State == stateExpiring {
				m.addProblem(problem{Kind: sentenceCase(kind.noun) + " expires", Href: Path + kind.path,
					Text:   cmp.Or(strings.TrimSpace(one.Description), shortID(one.ID)),
					Detail: "Create another one before that.", Since: *one.Expires})
			}
		}
	}
	return nil
}

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

// addCertificates adds the certificates of an endpoint that end soon, but for those that were seen.
func (h *overviewHandlers) addCertificates(c *call, m *summary, e *account.Endpoint, seen map[CertificateEnd]bool) {
	if h.certificates == nil {
		return
	}
	for _, end := range h.certificates.EndingSoon(e, c.now()) {
		if seen[end] {
			continue
		}
		seen[end] = true
		p := problem{Kind: "Certificate expires", Text: end.Name, Href: objectLink(e.ID), Since: end.NotAfter,
			Detail: "Clients refuse " + e.URL + " then, and every other host of it. Renew the certificate of the " +
				"public listeners.", Serious: end.NotAfter.Before(c.now().Add(24 * time.Hour))}
		if end.Provider {
			p.Detail = "Logins at " + e.URL + ", and wherever this identity provider is asked, fail then. " +
				"Let the provider make a new certificate, and put its new metadata into the traffic policy."
		}
		m.addProblem(p)
	}
}

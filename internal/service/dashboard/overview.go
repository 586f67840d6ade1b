// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
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

// summaryCache keeps each account's summary for summaryTTL, so that concurrent requests share one.
type summaryCache struct {
	mu        sync.Mutex
	byAccount map[string]*cachedSummary
}

// cachedSummary is locked while its summary is made.
type cachedSummary struct {
	mu      sync.Mutex
	madeAt  time.Time
	summary *summary // nil until it is made
}

func (c *summaryCache) get(accountID string) *cachedSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byAccount == nil {
		c.byAccount = map[string]*cachedSummary{}
	}
	if c.byAccount[accountID] == nil {
		c.byAccount[accountID] = &cachedSummary{}
	}
	return c.byAccount[accountID]
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

// StateText returns the replica's state as the page shows it.
func (r Replica) StateText() string {
	switch {
	case r.Draining:
		return "stopping"
	case r.Own:
		return "shows this page"
	case r.Linked:
		return "linked"
	}
	return "not linked"
}

// Status returns the class of the state's mark.
func (r Replica) Status() string {
	switch {
	case r.Draining:
		return "warning"
	case r.Own, r.Linked:
		return "online"
	}
	return "offline"
}

// RoundTripText returns the time to the replica and back.
func (r Replica) RoundTripText() string {
	if r.RoundTrip == 0 {
		return orDash("")
	}
	return r.RoundTrip.Round(10 * time.Microsecond).String()
}

func (s *server) overview(c *call) error {
	if !c.hasScope(readScopes...) {
		http.Redirect(c.Writer, c.Request, identitiesPath, http.StatusSeeOther)
		return nil
	}
	m, err := s.summary(c.Context(), c.AccountID())
	if err != nil {
		return err
	}
	recent, err := s.opt.Store.AuditEvents(c.Context(), c.AccountID(), account.AuditFilter{},
		account.Page{Limit: eventsShown})
	if err != nil {
		return err
	}
	p := overviewPage{summary: m}
	if s.opt.Replicas != nil {
		p.Replicas = s.opt.Replicas.Replicas()
	}
	for _, e := range recent.Events {
		p.Events = append(p.Events, eventRow{e})
	}
	return c.show(http.StatusOK, view{Page: "overview", Title: "Overview", Nav: "", Live: "endpoints audit", Poll: true,
		Data: p})
}

func (s *server) summary(ctx context.Context, accountID string) (*summary, error) {
	cached := s.summaries.get(accountID)
	cached.mu.Lock()
	defer cached.mu.Unlock()
	now := s.opt.Clock()
	if cached.summary != nil && now.Sub(cached.madeAt) < summaryTTL {
		return cached.summary, nil
	}
	m := &summary{}
	for _, add := range []func(context.Context, string, *summary) error{s.addEndpoints, s.addOperators, s.addBackends,
		s.addAgents, s.addIdentities, s.addCredentials} {
		if err := add(ctx, accountID, m); err != nil {
			return nil, err
		}
	}
	cached.madeAt, cached.summary = now, m
	return m, nil
}

func (s *server) addEndpoints(ctx context.Context, accountID string, m *summary) error {
	rates := map[traffic.Key]traffic.Rate{}
	if s.opt.Traffic != nil {
		rates, _ = s.opt.Traffic.Rates(ctx, accountID)
	}
	certificates := endingCertificates{of: s.opt.Certificates, now: s.opt.Clock(), seen: map[CertificateEnd]bool{}}
	for before := ""; ; {
		page, err := s.opt.Store.ListEndpoints(ctx, accountID, account.EndpointFilter{},
			account.Page{BeforeID: before, Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		for _, e := range page.Endpoints {
			before = e.ID
			m.Endpoints.N++
			certificates.add(&e, m)
			if e.Status != account.StatusOffline {
				m.addFailing(&e, rateText{rates[traffic.Key(e.ID)]})
				continue
			}
			m.OfflineEndpoints.N++
			p := problem{Kind: "Endpoint offline", Text: e.URL, Href: objectLink(e.ID), Detail: "No agent holds it.",
				Serious: true}
			if e.OfflineSince != nil {
				p.Since = *e.OfflineSince
			}
			m.addProblem(p)
		}
		if !page.More || len(page.Endpoints) == 0 {
			return nil
		}
		if m.Endpoints.N >= maxScan {
			m.Endpoints.More, m.OfflineEndpoints.More = true, m.OfflineEndpoints.N > 0
			return nil
		}
	}
}

// addFailing adds an endpoint of which a tenth of the requests fails.
func (m *summary) addFailing(e *account.Endpoint, rate rateText) {
	if rate.FailingPerSecond == 0 || rate.FailingPerSecond < rate.PerSecond/10 {
		return
	}
	m.addProblem(problem{Kind: "Requests fail", Text: e.URL,
		Href:    Path + "endpoints/" + e.ID + "/traffic?requests=failing",
		Detail:  "In the last minute " + rate.Text() + " passed, and " + rate.FailingText() + " failed.",
		Serious: rate.FailingPerSecond >= rate.PerSecond/2})
}

func (s *server) addOperators(ctx context.Context, accountID string, m *summary) error {
	page, err := s.opt.Store.ListOperators(ctx, accountID, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	m.Operators = objectCount{len(page.Operators), page.More}
	for _, o := range page.Operators {
		row := s.operatorRow(o)
		if row.Silent {
			m.SilentOperators.N++
			m.addProblem(problem{Kind: "Operator silent", Text: row.Name(), Href: objectLink(o.ID),
				Detail: "No sign of life from cluster " + orDash(o.Deployment.ClusterName) + ".", Since: o.LastSeenAt,
				Serious: true})
		}
		if !row.Binds() {
			continue
		}
		if _, err := s.opt.MatchSelectors(row.Selectors()); err != nil {
			m.addProblem(problem{Kind: "Selector broken", Text: row.Name(), Href: objectLink(o.ID),
				Detail: sentence(account.FirstRule(err)), Serious: true})
		}
	}
	return nil
}

func (s *server) addBackends(ctx context.Context, accountID string, m *summary) error {
	for _, kind := range account.BackendKinds() {
		page, err := s.opt.Store.ListBackends(ctx, accountID, kind, account.Page{Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		m.Backends.N += len(page.Backends)
		m.Backends.More = m.Backends.More || page.More
		if kind != account.BackendFailover {
			continue
		}
		rows, err := s.backendRows(ctx, accountID, page.Backends...)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.FailedOver() {
				m.FailedOverBackends.N++
				m.addProblem(problem{Kind: "Backend failed over", Text: row.Name(), Href: objectLink(row.ID),
					Detail: fmt.Sprintf("Child %d of %d serves.", slices.Index(row.Children, row.Active)+1,
						len(row.Children))})
			}
		}
	}
	return nil
}

func (s *server) addAgents(ctx context.Context, accountID string, m *summary) error {
	agents, err := s.opt.Store.ListTunnelSessions(ctx, accountID, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	m.Agents = objectCount{len(agents.Sessions), agents.More}
	return nil
}

func (s *server) addIdentities(ctx context.Context, accountID string, m *summary) error {
	users, more, err := s.opt.Store.Users(ctx, accountID, account.UserFilter{},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	m.Identities = objectCount{len(users), more}
	m.LiveSessions.More = more
	for _, u := range users {
		m.LiveSessions.N += u.Sessions
	}
	return nil
}

// addCredentials adds the credentials that expire soon as problems.
func (s *server) addCredentials(ctx context.Context, accountID string, m *summary) error {
	for _, kind := range s.credentialKinds() {
		credentials, _, err := kind.list(ctx, accountID, account.Page{Limit: account.MaxPageLimit})
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

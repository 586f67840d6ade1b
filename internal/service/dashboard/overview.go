// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	problemsShown = 20
	eventsShown   = 10
	// summaryLife is for how long what was counted is good: counting reads all endpoints.
	summaryLife = 2 * time.Second
)

// tally is how many there are of something; More says that there are others.
type tally struct {
	N    int
	More bool
}

// String formats it for people.
func (t tally) String() string {
	if t.More {
		return thousands(t.N) + "+"
	}
	return thousands(t.N)
}

// problem is something that is wrong now.
type problem struct {
	Kind, Text, Href string
	Detail           string
	Since            time.Time // zero = not known
	Serious          bool
}

// summary is what an account has and what is wrong with it.
type summary struct {
	Endpoints, Offline       tally
	Agents, Operators, Quiet tally
	Backends, Fallen         tally
	Identities, LiveSessions tally
	Problems                 []problem
	MoreProblems             int
}

func (m *summary) problem(p problem) {
	if len(m.Problems) == problemsShown {
		m.MoreProblems++
		return
	}
	m.Problems = append(m.Problems, p)
}

// summaries keeps each account's summary for a moment, so that many who look cost no more than one.
type summaries struct {
	mu   sync.Mutex
	kept map[string]*keptSummary
}

type keptSummary struct {
	mu sync.Mutex
	at time.Time
	m  *summary
}

func (k *summaries) of(accountID string) *keptSummary {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string]*keptSummary{}
	}
	if k.kept[accountID] == nil {
		k.kept[accountID] = &keptSummary{}
	}
	return k.kept[accountID]
}

type overviewPage struct {
	*summary
	Events []eventRow
}

func (s *server) overview(c *call) error {
	if !c.hasScope(reading...) {
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
	for _, e := range recent.Events {
		p.Events = append(p.Events, eventRow{e})
	}
	return c.show(http.StatusOK, view{Page: "overview", Title: "Overview", Nav: "", Live: "endpoints audit", Poll: true,
		Data: p})
}

func (s *server) summary(ctx context.Context, accountID string) (*summary, error) {
	kept := s.summaries.of(accountID)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	now := s.opt.Clock()
	if kept.m != nil && now.Sub(kept.at) < summaryLife {
		return kept.m, nil
	}
	m := &summary{}
	for _, look := range []func(context.Context, string, *summary) error{s.lookAtEndpoints, s.lookAtOperators,
		s.lookAtBackends, s.lookAtRest} {
		if err := look(ctx, accountID, m); err != nil {
			return nil, err
		}
	}
	kept.at, kept.m = now, m
	return m, nil
}

func (s *server) lookAtEndpoints(ctx context.Context, accountID string, m *summary) error {
	for before := ""; ; {
		page, err := s.opt.Store.ListEndpoints(ctx, accountID, account.EndpointFilter{},
			account.Page{BeforeID: before, Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		for _, e := range page.Endpoints {
			before = e.ID
			m.Endpoints.N++
			if e.Status != account.StatusOffline {
				continue
			}
			m.Offline.N++
			p := problem{Kind: "Endpoint offline", Text: e.URL, Href: objectLink(e.ID), Detail: "No agent holds it.",
				Serious: true}
			if e.OfflineSince != nil {
				p.Since = *e.OfflineSince
			}
			m.problem(p)
		}
		if !page.More || len(page.Endpoints) == 0 {
			return nil
		}
		if m.Endpoints.N >= maxScan {
			m.Endpoints.More, m.Offline.More = true, m.Offline.N > 0
			return nil
		}
	}
}

func (s *server) lookAtOperators(ctx context.Context, accountID string, m *summary) error {
	page, err := s.opt.Store.ListOperators(ctx, accountID, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	m.Operators = tally{len(page.Operators), page.More}
	for _, o := range page.Operators {
		row := s.operatorRow(o)
		if row.Quiet {
			m.Quiet.N++
			m.problem(problem{Kind: "Operator silent", Text: row.Name(), Href: objectLink(o.ID),
				Detail: "No sign of life from cluster " + orDash(o.Deployment.ClusterName) + ".", Since: o.LastSeenAt,
				Serious: true})
		}
		if !row.Binds() {
			continue
		}
		if _, err := s.opt.MatchSelectors(row.Selectors()); err != nil {
			m.problem(problem{Kind: "Selector broken", Text: row.Name(), Href: objectLink(o.ID),
				Detail: sentence(account.FirstRule(err)), Serious: true})
		}
	}
	return nil
}

func (s *server) lookAtBackends(ctx context.Context, accountID string, m *summary) error {
	for _, kind := range account.BackendKinds() {
		page, err := s.opt.Store.ListBackends(ctx, accountID, kind, account.Page{Limit: account.MaxPageLimit})
		if err != nil {
			return err
		}
		m.Backends.N += len(page.Backends)
		m.Backends.More = m.Backends.More || page.More
		if kind != account.BackendFailover || s.opt.ActiveChild == nil {
			continue
		}
		for _, b := range page.Backends {
			row := backendRow{b, s.opt.ActiveChild(accountID, b.ID)}
			if row.FellOver() {
				m.Fallen.N++
				place := 0
				for i, child := range b.Children {
					if child == row.Active {
						place = i + 1
					}
				}
				m.problem(problem{Kind: "Backend failed over", Text: row.Name(), Href: objectLink(b.ID),
					Detail: fmt.Sprintf("Child %d of %d serves.", place, len(b.Children))})
			}
		}
	}
	return nil
}

func (s *server) lookAtRest(ctx context.Context, accountID string, m *summary) error {
	most := account.Page{Limit: account.MaxPageLimit}
	agents, err := s.opt.Store.ListTunnelSessions(ctx, accountID, most)
	if err != nil {
		return err
	}
	m.Agents = tally{len(agents.Sessions), agents.More}
	users, more, err := s.opt.Store.Users(ctx, accountID, account.UserFilter{}, most)
	if err != nil {
		return err
	}
	m.Identities = tally{len(users), more}
	m.LiveSessions.More = more
	for _, u := range users {
		m.LiveSessions.N += u.Sessions
	}
	keys, err := s.opt.Store.ListAPIKeys(ctx, accountID, most)
	if err != nil {
		return err
	}
	for _, k := range keys.Keys {
		s.lookAtCredential(m, "API key", kindAPIKeys, k.ID, k.Description, k.ExpiresAt)
	}
	tokens, err := s.opt.Store.ListAuthtokens(ctx, accountID, most)
	if err != nil {
		return err
	}
	for _, a := range tokens.Authtokens {
		s.lookAtCredential(m, "Authtoken", kindAuthtokens, a.ID, a.Description, a.ExpiresAt)
	}
	return nil
}

func (s *server) lookAtCredential(
	m *summary, what string, kind credentialKind, id, description string, expires *time.Time,
) {
	if s.credentialState(expires) != "expires soon" {
		return
	}
	name := strings.TrimSpace(description)
	if name == "" {
		name = shortID(id)
	}
	m.problem(problem{Kind: what + " expires", Text: name, Href: Path + string(kind), Detail: "Make another one in time.",
		Since: *expires})
}

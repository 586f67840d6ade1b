// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// isDeletable reports whether the dashboard deletes the endpoint: one of type cloud, or one whose
// object is gone or has no exporter now.
func isDeletable(e *account.Endpoint) bool {
	return e.Type == account.TypeCloud || e.Owner != nil && e.Status == account.StatusOffline
}

// confirmDeleteEndpoint asks before an endpoint is deleted, and tells what that breaks.
func (s *server) confirmDeleteEndpoint(c *call) error {
	e, err := s.opt.Store.Endpoint(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	if !isDeletable(e) {
		return account.Errorf(account.CodeInvalid,
			"endpoint %s is an agent's: it ends with its agent; stop that agent, or delete its object", e.ID)
	}
	facts := []fact{{"URL", e.URL}, {"Binding", strings.Join(e.Bindings, ", ")}, {"Id", e.ID}}
	if e.BackendID != "" {
		facts = append(facts, fact{"Forwards to", e.BackendID})
	}
	bound, err := s.operatorsOf(c, e)
	if err != nil {
		return err
	}
	if len(bound) > 0 {
		facts = append(facts, fact{"Bound by", strings.Join(bound, ", ")})
	}
	members, err := s.poolMembers(c, e)
	if err != nil {
		return err
	}
	if members > 0 {
		facts = append(facts, fact{"Others in its pool", count(members, "endpoint", "endpoints")})
	}
	page := link{e.URL, Path + "endpoints/" + e.ID}
	return c.confirm("endpoints", page, confirmation{Question: "Delete this endpoint?", Facts: facts,
		Effect: endpointDeletionEffect(e, len(bound), members), Verb: "Delete endpoint", Busy: "Deleting",
		Back:   page.Href,
		Danger: true})
}

// endpointDeletionEffect returns what callers and clusters see when the endpoint is gone.
func endpointDeletionEffect(e *account.Endpoint, operators, members int) string {
	var b strings.Builder
	if members > 0 {
		b.WriteString("The others in its pool serve its callers. ")
	} else {
		b.WriteString("Callers of " + e.URL + " get an error at once. ")
	}
	switch e.Bindings[0] {
	case account.BindingKubernetes:
		if operators > 0 && members == 0 {
			b.WriteString("The operators that bind it remove its Services. ")
		}
	case account.BindingInternal:
		b.WriteString("Traffic policies that forward to it answer with an error. ")
	case account.BindingPublic:
		b.WriteString("People’s sessions at this URL are of no use any more. ")
	}
	if e.TrafficPolicy != "" {
		b.WriteString("Its traffic policy is deleted with it, secrets included. ")
	}
	if e.Owner != nil {
		b.WriteString("If its object is still there, the exporter makes it again: delete " + e.Owner.String() +
			" too. ")
	}
	b.WriteString("A new endpoint with this URL gets another id.")
	return b.String()
}

// operatorsOf returns the names of the operators that bind the endpoint.
func (s *server) operatorsOf(c *call, e *account.Endpoint) (names []string, err error) {
	if !slices.Contains(e.Bindings, account.BindingKubernetes) {
		return nil, nil
	}
	found, err := s.opt.Store.ListOperators(c.Context(), c.AccountID(), account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	for _, o := range found.Operators {
		row := s.operatorRow(o)
		if !row.Binds() {
			continue
		}
		matches, err := s.opt.MatchSelectors(row.Selectors())
		if err != nil || !matches(e) { // selectors that do not compile bind nothing
			continue
		}
		name := row.Name()
		if cluster := o.Deployment.ClusterName; cluster != "" {
			name = cluster + " (" + name + ")"
		}
		names = append(names, name)
	}
	return names, nil
}

// poolMembers returns how many other endpoints have the URL of the endpoint.
func (s *server) poolMembers(c *call, e *account.Endpoint) (int, error) {
	if !e.SharesURL() {
		return 0, nil
	}
	found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(),
		account.EndpointFilter{Bindings: e.Bindings, URL: e.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return 0, err
	}
	return len(slices.DeleteFunc(found.Endpoints, func(o account.Endpoint) bool { return o.ID == e.ID })), nil
}

func (s *server) deleteEndpoint(c *call) error {
	if err := s.opt.Store.DeleteEndpoint(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(c.returnPath(Path+"endpoints", Path+"endpoints/"+c.ID()), notice{Code: noticeEndpointDeleted})
}

// confirmDeleteBackend asks before a backend is deleted. One that others use cannot be deleted: the
// page names them.
func (s *server) confirmDeleteBackend(c *call) error {
	b, err := s.knownBackend(c)
	if err != nil {
		return err
	}
	row := backendRow{Backend: *b}
	facts := []fact{{"Kind", kindName(b.Kind)}, {"What it does", orDash(row.Summary())},
		{"Description", orDash(b.Description)}, {"Id", b.ID}}
	parents, err := s.parentsOf(c, b.ID)
	if err != nil {
		return err
	}
	endpoints, err := s.endpointsOfBackend(c, b.ID)
	if err != nil {
		return err
	}
	page := link{row.Name(), Path + "backends/" + b.ID}
	q := confirmation{Question: "Delete this backend?", Verb: "Delete backend", Busy: "Deleting", Back: page.Href,
		Danger: true, Effect: "No endpoint has it as its backend, and no other backend has it as a child. " +
			"While a traffic policy forwards to it, it is not deleted, and the server names the endpoint."}
	for _, use := range []struct {
		what string
		ids  []string
	}{{"Child of", parents}, {"Backend of", endpoints}} {
		if len(use.ids) > 0 {
			facts = append(facts, fact{use.what, strings.Join(use.ids, ", ")})
			q.Question, q.Verb = "This backend is in use", ""
			q.Effect = "It cannot be deleted while others use it. Take it out there, or delete those first."
		}
	}
	q.Facts = facts
	return c.confirm("backends", page, q)
}

// knownBackend returns the backend that the call names.
func (s *server) knownBackend(c *call) (*account.Backend, error) {
	kind := backendKindOf(c.ID())
	if kind == "" {
		return nil, account.Errorf(account.CodeNotFound, "there is no backend %q", account.Shorten(c.ID()))
	}
	return s.opt.Store.Backend(c.Context(), c.AccountID(), kind, c.ID())
}

// parentsOf returns the names of the backends that have the backend as a child.
func (s *server) parentsOf(c *call, id string) (names []string, err error) {
	for _, kind := range []account.BackendKind{account.BackendFailover, account.BackendWeighted} {
		all, err := s.allBackends(c.Context(), c.AccountID(), kind)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			if _, weighted := b.Weights[id]; weighted || slices.Contains(b.Children, id) {
				names = append(names, backendRow{Backend: b}.Name())
			}
		}
	}
	return names, nil
}

// endpointsOfBackend returns the URLs of the endpoints that have the backend.
func (s *server) endpointsOfBackend(c *call, id string) (urls []string, err error) {
	page := account.Page{Limit: account.MaxPageLimit}
	for range maxScan / account.MaxPageLimit {
		found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Type: account.TypeCloud}, page)
		if err != nil {
			return nil, err
		}
		for _, e := range found.Endpoints {
			if page.BeforeID = e.ID; e.BackendID == id {
				urls = append(urls, e.URL)
			}
		}
		if !found.More || len(found.Endpoints) == 0 {
			break
		}
	}
	return urls, nil
}

func (s *server) deleteBackend(c *call) error {
	b, err := s.knownBackend(c)
	if err == nil {
		err = s.opt.Store.DeleteBackend(c.Context(), c.Caller(), b.Kind, b.ID)
	}
	if err != nil {
		return err
	}
	list := Path + "backends?" + url.Values{"kind": {string(b.Kind)}}.Encode()
	return c.redirect(c.returnPath(list, Path+"backends/"+b.ID), notice{Code: noticeBackendDeleted})
}

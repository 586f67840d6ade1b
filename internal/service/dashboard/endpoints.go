// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

var bindings = []string{account.BindingKubernetes, account.BindingPublic, account.BindingInternal,
	account.BindingClusterset}

type endpointsPage struct {
	Query, Binding, Status string
	Filtered               bool
	Bindings, Statuses     []string
	Rows                   []account.Endpoint
	Agents                 map[string]account.TunnelSession
	Pager                  pager
}

func (s *server) endpoints(c *call) error {
	p := endpointsPage{Query: c.queryText("q"), Binding: c.queryEnum("binding", bindings...),
		Status:   c.queryEnum("status", account.StatusOnline, account.StatusOffline),
		Bindings: bindings, Statuses: []string{account.StatusOnline, account.StatusOffline}}
	p.Filtered = p.Query != "" || p.Binding != "" || p.Status != ""
	var filter account.EndpointFilter
	if p.Binding != "" {
		filter.Bindings = []string{p.Binding}
	}
	read := func(page account.Page) ([]account.Endpoint, bool, error) {
		found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(), filter, page)
		if err != nil {
			return nil, false, err
		}
		return found.Endpoints, found.More, nil
	}
	matches := func(e *account.Endpoint) bool {
		return (p.Status == "" || e.Status == p.Status) &&
			(p.Query == "" || contains(p.Query, e.URL, e.ID, e.Name, e.Description))
	}
	rows, last, more, err := scan(c, p.Query != "" || p.Status != "", read, endpointID, matches)
	if err != nil {
		return err
	}
	if p.Agents, err = s.agentsByID(c); err != nil {
		return err
	}
	p.Rows = rows
	p.Pager = c.newPager(len(rows), more, last,
		url.Values{"q": {p.Query}, "binding": {p.Binding}, "status": {p.Status}})
	return c.show(http.StatusOK, view{Page: "endpoints", Title: "Endpoints", Nav: "endpoints", Live: "endpoints audit",
		Data: p})
}

type endpointPage struct {
	account.Endpoint
	Agent   *account.TunnelSession
	Policy  string
	Backend *account.Backend
	Active  string
	Pool    []account.Endpoint // other endpoints with its URL
	// set for the export of a Service: the id of its cluster, and the endpoints of its ports
	ClusterID string
	Ports     []account.Endpoint
}

// IsEditable reports whether forms change the endpoint.
func (p *endpointPage) IsEditable() bool { return isEditable(&p.Endpoint) }

// IsDeletable reports whether the dashboard deletes the endpoint.
func (p *endpointPage) IsDeletable() bool { return isDeletable(&p.Endpoint) }

// HasPolicy reports whether a traffic policy may apply to the endpoint.
func (p *endpointPage) HasPolicy() bool {
	return !slices.Contains(p.Bindings, account.BindingClusterset)
}

func (s *server) endpoint(c *call) error {
	e, err := s.opt.Store.Endpoint(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := endpointPage{Endpoint: *e}
	if e.TrafficPolicy != "" {
		p.Policy = redact.Text(e.TrafficPolicy, func(secret string) string {
			return s.opt.Redactor.RedactionMark(e.AccountID, secret)
		})
		p.TrafficPolicy = ""
	}
	if e.TunnelSession != nil {
		p.Agent, err = s.opt.Store.TunnelSession(c.Context(), c.AccountID(), e.TunnelSession.ID)
		if err != nil && account.CodeOf(err) != account.CodeNotFound { // not found: it has just ended
			return err
		}
	}
	if e.BackendID != "" {
		p.Backend, err = s.opt.Store.Backend(c.Context(), c.AccountID(), backendKindOf(e.BackendID), e.BackendID)
		if err != nil && account.CodeOf(err) != account.CodeNotFound {
			return err
		}
		if p.Backend != nil {
			rows, err := s.backendRows(c.Context(), c.AccountID(), *p.Backend)
			if err != nil {
				return err
			}
			p.Active = rows[0].Active
		}
	}
	if e.ServiceExport != nil {
		p.ClusterID = account.EndpointURL{Host: e.Host}.ClusterID()
		if p.Ports, err = s.exportedPorts(c, e); err != nil {
			return err
		}
	}
	if e.SharesURL() {
		others, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(), account.EndpointFilter{URL: e.URL},
			account.Page{Limit: pageSize})
		if err != nil {
			return err
		}
		for _, o := range others.Endpoints {
			if o.ID != e.ID {
				p.Pool = append(p.Pool, o)
			}
		}
	}
	return c.show(http.StatusOK, view{Page: "endpoint", Title: e.URL, Nav: "endpoints",
		Crumb: &link{"Endpoints", Path + "endpoints"}, Live: "endpoints", Data: &p})
}

// exportedPorts returns the endpoints of the TCP ports of the export of a Service.
func (s *server) exportedPorts(c *call, e *account.Endpoint) (ports []account.Endpoint, err error) {
	for _, port := range e.ServiceExport.Ports {
		u := account.EndpointURL{Scheme: "tcp", Host: e.Host, Port: int(port.Port)}
		if port.Protocol != "TCP" {
			continue
		}
		page, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Bindings: e.Bindings, URL: u.String()}, account.Page{Limit: pageSize})
		if err != nil {
			return nil, err
		}
		ports = append(ports, page.Endpoints...)
	}
	return ports, nil
}

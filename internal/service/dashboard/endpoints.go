// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
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

// endpointHandlers serve the pages of endpoints.
type endpointHandlers struct {
	store interface {
		account.Endpoints
		account.CloudEndpoints
		account.TunnelSessions
	}
	backends  *backendReader
	operators *operatorReader
	redactor  httpkit.Redactor
}

func (h *endpointHandlers) list(c *call) error {
	p := endpointsPage{Query: c.queryText("q"), Binding: c.queryEnum("binding", bindings...),
		Status:   c.queryEnum("status", account.StatusOnline, account.StatusOffline),
		Bindings: bindings, Statuses: []string{account.StatusOnline, account.StatusOffline}}
	p.Filtered = p.Query != "" || p.Binding != "" || p.Status != ""
	var filter account.EndpointFilter
	if p.Binding != "" {
		filter.Bindings = []string{p.Binding}
	}
	matches := func(e *account.Endpoint) bool {
		return (p.Status == "" || e.Status == p.Status) &&
			(p.Query == "" || contains(p.Query, e.URL, e.ID, e.Name, e.Description))
	}
	if p.Query == "" && p.Status == "" {
		matches = nil
	}
	rows, last, more, err := scanEndpoints(c, h.store, filter, matches)
	if err != nil {
		return err
	}
	if p.Agents, err = agentsByID(c, h.store); err != nil {
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
func (p *endpointPage) IsEditable() bool { return p.Type == account.TypeCloud && p.Owner == nil }

// IsDeletable reports whether the dashboard deletes the endpoint.
func (p *endpointPage) IsDeletable() bool { return isDeletable(&p.Endpoint) }

// HasPolicy reports whether a traffic policy may apply to the endpoint.
func (p *endpointPage) HasPolicy() bool {
	return !slices.Contains(p.Bindings, account.BindingClusterset)
}

func (h *endpointHandlers) show(c *call) error {
	e, err := h.store.Endpoint(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := endpointPage{Endpoint: *e}
	if e.TrafficPolicy != "" {
		p.Policy = redact.Text(e.TrafficPolicy, func(secret string) string {
			return h.redactor.RedactionMark(e.AccountID, secret)
		})
		p.TrafficPolicy = ""
	}
	if e.TunnelSession != nil {
		p.Agent, err = h.store.TunnelSession(c.Context(), c.AccountID(), e.TunnelSession.ID)
		if err != nil && account.CodeOf(err) != account.CodeNotFound { // not found: it has just ended
			return err
		}
	}
	if e.BackendID != "" {
		p.Backend, err = h.backends.store.Backend(c.Context(), c.AccountID(), backendKindOf(e.BackendID), e.BackendID)
		if err != nil && account.CodeOf(err) != account.CodeNotFound {
			return err
		}
		if p.Backend != nil {
			rows, err := h.backends.rows(c, *p.Backend)
			if err != nil {
				return err
			}
			p.Active = rows[0].Active
		}
	}
	if e.ServiceExport != nil {
		p.ClusterID = account.EndpointURL{Host: e.Host}.ClusterID()
		if p.Ports, err = h.exportedPorts(c, e); err != nil {
			return err
		}
	}
	if p.Pool, err = h.pool(c, e, pageSize); err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "endpoint", Title: e.URL, Nav: "endpoints",
		Crumb: &link{"Endpoints", Path + "endpoints"}, Live: "endpoints", Data: &p})
}

// exportedPorts returns the endpoints of the TCP ports of the export of a Service.
func (h *endpointHandlers) exportedPorts(c *call, e *account.Endpoint) (ports []account.Endpoint, err error) {
	var numbers []int32
	for _, port := range e.ServiceExport.Ports {
		numbers = append(numbers, e.ServiceExport.BoundAt(port)...)
	}
	for _, number := range numbers {
		u := account.EndpointURL{Scheme: "tcp", Host: e.Host, Port: int(number)}
		page, err := h.store.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Bindings: e.Bindings, URL: u.String()}, account.Page{Limit: pageSize})
		if err != nil {
			return nil, err
		}
		ports = append(ports, page.Endpoints...)
	}
	return ports, nil
}

// isDeletable reports whether the dashboard deletes the endpoint: one of type cloud, or one whose
// object is gone or has no exporter now.
func isDeletable(e *account.Endpoint) bool {
	return e.Type == account.TypeCloud || e.Owner != nil && e.Status == account.StatusOffline
}

// confirmDelete asks before an endpoint is deleted, and tells what that breaks.
func (h *endpointHandlers) confirmDelete(c *call) error {
	e, err := h.store.Endpoint(c.Context(), c.AccountID(), c.ID())
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
	bound, err := h.boundBy(c, e)
	if err != nil {
		return err
	}
	if len(bound) > 0 {
		facts = append(facts, fact{"Bound by", strings.Join(bound, ", ")})
	}
	pool, err := h.pool(c, e, account.MaxPageLimit)
	if err != nil {
		return err
	}
	if len(pool) > 0 {
		facts = append(facts, fact{"Others in its pool", count(len(pool), "endpoint", "endpoints")})
	}
	page := link{e.URL, Path + "endpoints/" + e.ID}
	return c.confirm("endpoints", page, confirmation{Question: "Delete this endpoint?", Facts: facts,
		Effect: endpointDeletionEffect(e, len(bound), len(pool)), Verb: "Delete endpoint", Busy: "Deleting",
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

// boundBy returns the names of the operators that bind the endpoint.
func (h *endpointHandlers) boundBy(c *call, e *account.Endpoint) (names []string, err error) {
	if !slices.Contains(e.Bindings, account.BindingKubernetes) {
		return nil, nil
	}
	operators, err := h.operators.binding(c)
	for _, o := range operators {
		if o.problem != "" || !o.matches(e) {
			continue
		}
		name := o.Name()
		if cluster := o.Deployment.ClusterName; cluster != "" {
			name = cluster + " (" + name + ")"
		}
		names = append(names, name)
	}
	return names, err
}

// pool returns the other endpoints with the URL of the endpoint.
func (h *endpointHandlers) pool(c *call, e *account.Endpoint, limit int) ([]account.Endpoint, error) {
	if !e.SharesURL() {
		return nil, nil
	}
	found, err := h.store.ListEndpoints(c.Context(), c.AccountID(),
		account.EndpointFilter{Bindings: e.Bindings, URL: e.URL}, account.Page{Limit: limit})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Endpoints, func(o account.Endpoint) bool { return o.ID == e.ID }), nil
}

func (h *endpointHandlers) delete(c *call) error {
	err := h.store.DeleteEndpoint(c.Context(), c.Caller(), c.ID())
	return c.finish(err, c.returnPath(Path+"endpoints", Path+"endpoints/"+c.ID()), notice{Code: noticeEndpointDeleted})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backendRoutes adds the routes of every kind of backends to the list.
func (s *server) backendRoutes(routes map[string]map[string]method) {
	for _, kind := range account.BackendKinds() {
		k := backendsOf{s, kind}
		at := "/backends/" + string(kind)
		routes[at] = map[string]method{http.MethodGet: {reading, k.list}, http.MethodPost: {only, k.create}}
		routes[at+"/{id}"] = map[string]method{http.MethodGet: {reading, k.get}, http.MethodPatch: {only, k.patch},
			http.MethodDelete: {only, k.delete}}
	}
}

// backendsOf handles the backends of a kind.
type backendsOf struct {
	*server
	kind account.BackendKind
}

func (k backendsOf) list(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := k.opt.Backends.ListBackends(c.r.Context(), c.accountID(), k.kind, page)
	if err != nil {
		return err
	}
	list := backendList{Backends: []any{}, URI: k.uri("backends", string(k.kind))}
	show, err := k.shower(c)
	if err != nil {
		return err
	}
	for i := range found.Backends {
		list.Backends = append(list.Backends, show(&found.Backends[i]))
	}
	if n := len(found.Backends); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, found.Backends[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

func (k backendsOf) get(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := k.opt.Backends.Backend(c.r.Context(), c.accountID(), k.kind, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return k.answer(c, http.StatusOK, b)
}

func (k backendsOf) create(c *call) error {
	b, patch, err := k.readPatch(c)
	if err != nil {
		return err
	}
	wanted, err := patch.Apply(account.Backend{AccountID: c.accountID(), Kind: k.kind})
	if err := b.err(err); err != nil {
		return err
	}
	made, err := k.opt.Backends.CreateBackend(c.r.Context(), c.caller(), wanted)
	if err != nil {
		return err
	}
	return k.answer(c, http.StatusCreated, made)
}

func (k backendsOf) patch(c *call) error {
	b, patch, err := k.readPatch(c)
	if err != nil {
		return err
	}
	id := c.r.PathValue("id")
	if len(b.broken) > 0 {
		existing, err := k.opt.Backends.Backend(c.r.Context(), c.accountID(), k.kind, id)
		if err != nil {
			return err
		}
		_, err = patch.Apply(*existing) // to list all rules at once
		return b.err(err)
	}
	patched, err := k.opt.Backends.PatchBackend(c.r.Context(), c.caller(), k.kind, id, patch)
	if err != nil {
		return err
	}
	return k.answer(c, http.StatusOK, patched)
}

func (k backendsOf) delete(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := k.opt.Backends.DeleteBackend(c.r.Context(), c.caller(), k.kind, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// readPatch takes the fields of a backend of the kind.
func (k backendsOf) readPatch(c *call) (*body, account.BackendPatch, error) {
	var p account.BackendPatch
	if err := c.noQuery(); err != nil {
		return nil, p, err
	}
	b, err := c.readBody()
	if err != nil {
		return nil, p, err
	}
	o := b.top
	o.ownID(c)
	p.Description, p.Metadata = o.text("description"), o.text("metadata")
	switch k.kind {
	case account.BackendFailover:
		p.Children = o.texts("backends")
		if health, null := o.object("health"); health != nil {
			p.HealthStatus = health.integers("http_status")
			p.HealthRule = account.HealthRulePatch{
				WindowSeconds: health.integerOr("window_seconds", 0), MinAnswers: health.integerOr("min_answers", 0),
				FailurePercent: health.integerOr("failure_percent", 0), MinClients: health.integerOr("min_clients", 0),
			}
			health.done()
		} else if null {
			p.HealthStatus, p.HealthRule = new([]int{}), account.HealthRulePatch{
				WindowSeconds: new(0), MinAnswers: new(0), FailurePercent: new(0), MinClients: new(0),
			}
		}
	case account.BackendWeighted:
		p.Weights = mapOf(o, "backends", "must be an object of numbers, by id", (*object).integer)
	case account.BackendTunnelGroup:
		p.Labels = mapOf(o, "labels", "must be an object of strings, by label", (*object).text)
	case account.BackendHTTPResponse:
		p.StatusCode, p.Body = o.integerOr("status_code", http.StatusOK), o.text("body")
		p.Headers = mapOf(o, "headers", "must be an object of strings, by name", (*object).text)
	case account.BackendStatic:
		if p.Address = o.text("address"); p.Address != nil && k.opt.CheckStaticAddress != nil {
			b.broken = append(b.broken, account.FieldsOf(k.opt.CheckStaticAddress(*p.Address))...)
		}
		if tls, null := o.object("tls"); tls != nil {
			p.TLS = tls.boolean("enabled")
			tls.done()
		} else if null {
			p.TLS = new(false)
		}
	}
	o.done()
	return b, p, nil
}

func healthOf(b *account.Backend) backendHealth {
	rule := b.HealthRule
	return backendHealth{
		HTTPStatus: append([]int{}, b.HealthStatus...), WindowSeconds: rule.WindowSeconds, MinAnswers: rule.MinAnswers,
		FailurePercent: rule.FailurePercent, MinClients: rule.MinClients,
	}
}

func (k backendsOf) answer(c *call, status int, b *account.Backend) error {
	show, err := k.shower(c)
	if err != nil {
		return err
	}
	return c.writeJSON(status, show(b))
}

// shower returns what shows backends of the kind, as of now.
func (k backendsOf) shower(c *call) (func(b *account.Backend) any, error) {
	var online []account.LabelledTunnel
	if k.kind == account.BackendTunnelGroup {
		var err error
		if online, err = k.onlineTunnels(c); err != nil {
			return nil, err
		}
	}
	return func(b *account.Backend) any {
		uri := k.uri("backends", string(k.kind), b.ID)
		switch k.kind {
		case account.BackendFailover:
			shown := failoverBackend{ID: b.ID, URI: uri, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
				Description: b.Description, Metadata: b.Metadata,
				Backends: b.Children, Health: healthOf(b)}
			if k.opt.Active != nil {
				shown.ActiveBackend = k.opt.Active.Active(b.AccountID, b.ID)
			}
			return shown
		case account.BackendWeighted:
			return weightedBackend{ID: b.ID, URI: uri, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
				Description: b.Description, Metadata: b.Metadata, Backends: b.Weights}
		case account.BackendTunnelGroup:
			return tunnelGroupBackend{ID: b.ID, URI: uri, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
				Description: b.Description, Metadata: b.Metadata,
				Labels: b.Labels, Tunnels: k.tunnelsWith(online, b.Labels)}
		case account.BackendHTTPResponse:
			headers := map[string]string{}
			maps.Copy(headers, b.Response.Headers)
			return httpResponseBackend{ID: b.ID, URI: uri, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
				Description: b.Description, Metadata: b.Metadata,
				StatusCode: b.Response.StatusCode, Headers: headers, Body: b.Response.Body}
		default:
			return staticBackend{ID: b.ID, URI: uri, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt, Description: b.Description,
				Metadata: b.Metadata,
				Address:  b.Static.Address, TLS: staticTLS{Enabled: b.Static.TLS}}
		}
	}, nil
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// backendHandlers serves the backends of one kind.
type backendHandlers struct {
	kind    account.BackendKind
	store   account.Backends
	edge    httpkit.Backends
	tunnels *tunnelHandlers
	uris    uris
}

func (h *backendHandlers) backends() writable[account.Backend, account.BackendPatch] {
	return writable[account.Backend, account.BackendPatch]{
		kind:      kind[account.Backend]{func(b *account.Backend) string { return b.ID }, h.one, h.all},
		readPatch: h.readPatch, defaults: account.Backend{Kind: h.kind},
		read: func(c *call, id string) (*account.Backend, error) {
			return h.store.Backend(c.Context(), c.AccountID(), h.kind, id)
		},
		create: h.create, update: h.update,
	}
}

func (h *backendHandlers) list(c *call, page account.Page) ([]account.Backend, bool, error) {
	return h.store.ListBackends(c.Context(), c.AccountID(), h.kind, page)
}

func (h *backendHandlers) one(c *call, b *account.Backend) (any, error) {
	online, err := h.onlineTunnels(c)
	return h.show(b, online), err
}

func (h *backendHandlers) all(c *call, backends []account.Backend) (any, error) {
	online, err := h.onlineTunnels(c)
	shown := make([]any, len(backends))
	for i := range backends {
		shown[i] = h.show(&backends[i], online)
	}
	return shown, err
}

// show returns the backend as it is answered. online are the labelled tunnels of the account, which
// only tunnel groups need.
func (h *backendHandlers) show(b *account.Backend, online []account.LabelledTunnel) any {
	f := resource.BackendFields{ID: b.ID, URI: h.uris.at(resource.BackendPath(h.kind), b.ID), CreatedAt: b.CreatedAt,
		UpdatedAt: b.UpdatedAt, Description: b.Description, Metadata: b.Metadata}
	switch h.kind {
	case account.BackendFailover:
		health := resource.BackendHealth{HTTPStatus: append([]int{}, b.HealthStatus...), HealthRule: b.HealthRule}
		return resource.FailoverBackend{BackendFields: f, Backends: b.Children, Health: health,
			ActiveBackend: h.edge.ActiveChild(b.AccountID, b.ID)}
	case account.BackendWeighted:
		return resource.WeightedBackend{BackendFields: f, Backends: b.Weights}
	case account.BackendTunnelGroup:
		return resource.TunnelGroupBackend{BackendFields: f, Labels: b.Labels,
			Tunnels: h.tunnels.withLabels(online, b.Labels)}
	case account.BackendHTTPResponse:
		headers := map[string]string{}
		maps.Copy(headers, b.Response.Headers)
		return resource.HTTPResponseBackend{BackendFields: f, StatusCode: b.Response.StatusCode, Headers: headers,
			Body: b.Response.Body}
	default:
		return resource.StaticBackend{BackendFields: f, Address: b.Static.Address,
			TLS: resource.StaticTLS{Enabled: b.Static.TLS}}
	}
}

// onlineTunnels reads the labelled tunnels of the account for tunnel groups.
func (h *backendHandlers) onlineTunnels(c *call) ([]account.LabelledTunnel, error) {
	if h.kind != account.BackendTunnelGroup {
		return nil, nil
	}
	return h.tunnels.all(c)
}

func (h *backendHandlers) create(
	ctx context.Context, by account.Caller, p account.BackendPatch,
) (*account.Backend, error) {
	b, err := p.Apply(account.Backend{AccountID: by.AccountID, Kind: h.kind}, time.Time{})
	if err != nil {
		return nil, err
	}
	return h.store.CreateBackend(ctx, by, b)
}

func (h *backendHandlers) update(
	ctx context.Context, by account.Caller, id string, p account.BackendPatch,
) (*account.Backend, error) {
	return h.store.PatchBackend(ctx, by, h.kind, id, p)
}

func (h *backendHandlers) remove(ctx context.Context, by account.Caller, id string) error {
	return h.store.DeleteBackend(ctx, by, h.kind, id)
}

// readPatch reads the fields of a backend of the kind.
func (h *backendHandlers) readPatch(o *object) account.BackendPatch {
	p := account.BackendPatch{Description: o.text("description"), Metadata: o.text("metadata")}
	switch h.kind {
	case account.BackendFailover:
		p.Children = o.texts("backends")
		if health, null := o.object("health"); health != nil {
			p.HealthStatus = health.integers("http_status")
			p.HealthRule = account.HealthRulePatch{
				WindowSeconds:  health.integerOrDefault("window_seconds", 0),
				MinAnswers:     health.integerOrDefault("min_answers", 0),
				FailurePercent: health.integerOrDefault("failure_percent", 0),
				MinClients:     health.integerOrDefault("min_clients", 0),
			}
			health.rejectUnknown()
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
		p.StatusCode, p.Body = o.integerOrDefault("status_code", http.StatusOK), o.text("body")
		p.Headers = mapOf(o, "headers", "must be an object of strings, by name", (*object).text)
	case account.BackendStatic:
		if p.Address = o.text("address"); p.Address != nil {
			o.body.fieldErrors = append(o.body.fieldErrors,
				account.FieldsOf(h.edge.CheckStaticAddress(*p.Address))...)
		}
		if tls, null := o.object("tls"); tls != nil {
			p.TLS = tls.boolean("enabled")
			tls.rejectUnknown()
		} else if null {
			p.TLS = new(false)
		}
	}
	return p
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/redact"
)

// endpointFields are those that a client may send of an endpoint.
type endpointFields struct {
	account.EndpointPatch
	url, kind, name *string
	bindings        *[]string
}

func readEndpointFields(c *call) (*body, endpointFields, error) {
	var f endpointFields
	if err := c.noQuery(); err != nil {
		return nil, f, err
	}
	b, err := c.readBody()
	if err != nil {
		return nil, f, err
	}
	o := b.top
	o.ownID(c)
	f.url, f.kind, f.name, f.bindings = o.text("url"), o.text("type"), o.text("name"), o.texts("bindings")
	f.Description, f.Metadata, f.PoolingEnabled = o.text("description"), o.text("metadata"), o.boolean("pooling_enabled")
	f.TrafficPolicy, f.BackendID = o.text("traffic_policy"), o.text("backend_id")
	o.done()
	return b, f, nil
}

func (s *server) createEndpoint(c *call) error {
	b, f, err := readEndpointFields(c)
	if err != nil {
		return err
	}
	if f.kind != nil && *f.kind != "" && *f.kind != account.TypeCloud {
		b.top.bad("type", *f.kind,
			`only endpoints of type "cloud" are made here; agents make their own: fairlead http 8080 --url http://NAME.NAMESPACE`)
	}
	e := account.Endpoint{AccountID: c.accountID(), Principal: &account.Ref{ID: c.key.ID},
		Bindings: []string{account.BindingKubernetes}}
	if f.bindings != nil && len(*f.bindings) > 0 {
		e.Bindings = *f.bindings
	}
	if f.name != nil {
		e.Name = *f.name
	}
	facts, err := s.applyNew(c, b, f, &e)
	if err := b.err(err); err != nil {
		return err
	}
	made, err := s.opt.CloudEndpoints.CreateEndpoint(c.r.Context(), e, facts)
	if err != nil {
		return err
	}
	s.showEndpoint(made)
	return c.writeJSON(http.StatusCreated, made)
}

// applyNew completes a new endpoint from what was sent. The error lists the rules that are not in
// the body yet.
func (s *server) applyNew(
	c *call, b *body, f endpointFields, e *account.Endpoint,
) (facts account.PolicyFacts, err error) {
	if len(e.Bindings) != 1 {
		b.top.bad("bindings", strings.Join(e.Bindings, ","),
			"an endpoint has exactly one binding: kubernetes, internal or public")
		return facts, nil
	}
	if f.url == nil {
		b.top.bad("url", "", "is required, for example http://shop.demo")
		return facts, nil
	}
	u, err := account.ParseBindingURL(e.Bindings[0], *f.url)
	if err != nil {
		return facts, err
	}
	e.URL, e.Scheme, e.Host, e.Port = u.String(), u.Scheme, u.Host, u.Port
	if f.TrafficPolicy != nil {
		text, fields := s.restorePolicy(c, *f.TrafficPolicy, "")
		b.broken = append(b.broken, fields...)
		f.TrafficPolicy = &text
	}
	if *e, err = f.Apply(*e); err != nil || len(b.broken) > 0 {
		return facts, err
	}
	return s.checkPolicy(e.TrafficPolicy, e)
}

func (s *server) updateEndpoint(c *call) error {
	b, f, err := readEndpointFields(c)
	if err != nil {
		return err
	}
	var patched *account.Endpoint
	for range maxPatchTries {
		if patched, err = s.patchEndpoint(c, b, f); account.CodeOf(err) != account.CodeChanged {
			break
		}
	}
	if err != nil {
		return err
	}
	s.showEndpoint(patched)
	return c.writeJSON(http.StatusOK, patched)
}

// maxPatchTries is how often a change is applied anew because the policy that its marks stand for
// has changed between reading and writing.
const maxPatchTries = 3

func (s *server) patchEndpoint(c *call, b *body, f endpointFields) (*account.Endpoint, error) {
	existing, err := s.opt.Endpoints.Endpoint(c.r.Context(), c.accountID(), c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if existing.Type != account.TypeCloud { // the store says what to do instead
		return s.opt.CloudEndpoints.PatchEndpoint(c.r.Context(), c.caller(), existing.ID, account.EndpointPatch{},
			account.PolicyFacts{})
	}
	f.keepIdentity(b, existing)
	var facts account.PolicyFacts
	if f.TrafficPolicy != nil {
		text, fields := s.restorePolicy(c, *f.TrafficPolicy, existing.TrafficPolicy)
		b.broken = append(b.broken, fields...)
		if text != *f.TrafficPolicy {
			f.ExpectedPolicy = &existing.TrafficPolicy
		}
		f.TrafficPolicy = &text
	}
	after, err := f.Apply(*existing)
	if err == nil && f.TrafficPolicy != nil && len(b.broken) == 0 {
		facts, err = s.checkPolicy(after.TrafficPolicy, existing)
	}
	if err := b.err(err); err != nil {
		return nil, err
	}
	return s.opt.CloudEndpoints.PatchEndpoint(c.r.Context(), c.caller(), existing.ID, f.EndpointPatch, facts)
}

// keepIdentity refuses another type, URL, binding or name. Empty values name none: generated
// clients send them.
func (f *endpointFields) keepIdentity(b *body, e *account.Endpoint) {
	const rule = "does not change; delete the endpoint and make another one, or leave it out"
	if f.kind != nil && *f.kind != "" && *f.kind != e.Type {
		b.top.bad("type", *f.kind, rule)
	}
	if f.name != nil && *f.name != e.Name {
		b.top.bad("name", *f.name, rule)
	}
	if f.bindings != nil && len(*f.bindings) > 0 && (len(*f.bindings) != 1 || (*f.bindings)[0] != e.Bindings[0]) {
		b.top.bad("bindings", strings.Join(*f.bindings, ","), rule)
	}
	if f.url != nil && *f.url != "" {
		if u, err := account.ParseBindingURL(e.Bindings[0], *f.url); err != nil || u.String() != e.URL {
			b.top.bad("url", *f.url, rule)
		}
	}
}

func (s *server) deleteEndpoint(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	if err := s.opt.CloudEndpoints.DeleteEndpoint(c.r.Context(), c.caller(), c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// restorePolicy puts the secrets of the stored policy in the place of the marks that a GET showed
// instead of them.
func (s *server) restorePolicy(c *call, text, stored string) (restored string, broken []account.FieldError) {
	if len(text) > account.MaxTrafficPolicy {
		return text, nil // another rule refuses it
	}
	restored, err := redact.Restore(text, stored, s.mark(c.accountID()))
	var unknown redact.UnknownMarkError
	switch {
	case errors.As(err, &unknown):
		return text, []account.FieldError{{Field: "traffic_policy", Value: unknown.Mark,
			Rule: "stands for a secret that this endpoint does not have; give the secret itself"}}
	case err != nil:
		return text, []account.FieldError{
			{Field: "traffic_policy", Value: "", Rule: "cannot be read: give a YAML or JSON document"}}
	}
	return restored, nil
}

// checkPolicy compiles a policy for an endpoint.
func (s *server) checkPolicy(text string, e *account.Endpoint) (account.PolicyFacts, error) {
	switch {
	case text == "":
		return account.PolicyFacts{}, nil
	case s.opt.CheckPolicy == nil:
		return account.PolicyFacts{},
			account.Invalid("traffic_policy", "", "this server does not run traffic policies; leave it out, and use backend_id")
	}
	return s.opt.CheckPolicy(text, e.Scheme, e.Bindings[0])
}

func (s *server) mark(accountID string) redact.Mark {
	return func(secret string) string { return s.opt.RedactionMark(accountID, secret) }
}

// showEndpoint makes of an endpoint what its reader may see.
func (s *server) showEndpoint(e *account.Endpoint) {
	s.fillEndpoint(e)
	if e.TrafficPolicy != "" {
		e.TrafficPolicy = redact.Text(e.TrafficPolicy, s.mark(e.AccountID))
	}
}

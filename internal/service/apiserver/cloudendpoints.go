// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// endpointFields are the fields of an endpoint that a client may send.
type endpointFields struct {
	account.EndpointPatch
	url, kind, name *string
	bindings        *[]string
	owner           *account.Owner
}

func readEndpointFields(c *call) (*body, endpointFields, error) {
	var f endpointFields
	b, err := c.readRequest()
	if err != nil {
		return nil, f, err
	}
	o := b.top
	f.url, f.kind, f.name, f.bindings = o.text("url"), o.text("type"), o.text("name"), o.texts("bindings")
	f.Description, f.Metadata, f.PoolingEnabled = o.text("description"), o.text("metadata"),
		o.boolean("pooling_enabled")
	f.TrafficPolicy, f.BackendID = o.text("traffic_policy"), o.text("backend_id")
	f.owner, f.ServiceExport = readOwner(o), readServiceExport(o)
	o.rejectUnknown()
	f.rejectExport(c, b)
	return b, f, nil
}

// readOwner reads the owner of an endpoint; nil when it is absent or null.
func readOwner(o *object) *account.Owner {
	inner, _ := o.object("owner")
	if inner == nil {
		return nil
	}
	field := func(name string) string { return valueOf(inner.text(name)) }
	owner := &account.Owner{Cluster: field("cluster"), Kind: field("kind"), Namespace: field("namespace"),
		Name: field("name"), UID: field("uid")}
	inner.rejectUnknown()
	return owner
}

// readServiceExport reads the export of an endpoint; nil when it is absent or null. What is left
// out is empty, but the type, which is ClusterSetIP, the session affinity, which is None, and the
// protocol of a port, which is TCP.
func readServiceExport(o *object) *account.ServiceExport {
	inner, _ := o.object("service_export")
	if inner == nil {
		return nil
	}
	s := &account.ServiceExport{Type: cmp.Or(valueOf(inner.text("type")), account.ExportClusterSetIP),
		SessionAffinity:       cmp.Or(valueOf(inner.text("session_affinity")), "None"),
		InternalTrafficPolicy: valueOf(inner.text("internal_traffic_policy")),
		TrafficDistribution:   valueOf(inner.text("traffic_distribution"))}
	if seconds := inner.integerOrNull("session_affinity_seconds"); seconds != nil {
		s.SessionAffinitySeconds = new(limit32(*seconds))
	}
	for _, port := range inner.objects("ports") {
		s.Ports = append(s.Ports, readExportPort(port))
	}
	for _, pod := range inner.objects("pods") {
		s.Pods = append(s.Pods, account.ServiceExportPod{Hostname: valueOf(pod.text("hostname")),
			Ready: valueOf(pod.boolean("ready"))})
		pod.rejectUnknown()
	}
	s.IPFamilies = valueOf(inner.texts("ip_families"))
	s.Labels, s.Annotations = inner.metadata("labels"), inner.metadata("annotations")
	s.Ready = valueOf(inner.boolean("ready"))
	inner.rejectUnknown()
	return s
}

// metadata reads labels or annotations.
func (o *object) metadata(name string) map[string]string {
	return valueOf(mapOf(o, name, "must be an object whose values are strings", (*object).text))
}

func readExportPort(o *object) account.ServiceExportPort {
	p := account.ServiceExportPort{Name: valueOf(o.text("name")), Protocol: cmp.Or(valueOf(o.text("protocol")), "TCP"),
		AppProtocol: valueOf(o.text("app_protocol"))}
	if number := o.integer("port"); number != nil {
		p.Port = limit32(*number)
	}
	o.rejectUnknown()
	return p
}

func (h *endpointHandlers) create(c *call) error {
	b, f, err := readEndpointFields(c)
	if err != nil {
		return err
	}
	if f.kind != nil && *f.kind != "" && *f.kind != account.TypeCloud {
		b.top.reject("type", *f.kind,
			`only endpoints of type "cloud" are made here; agents make their own: `+
				`fairlead http 8080 --url http://NAME.NAMESPACE`)
	}
	e := account.Endpoint{AccountID: c.AccountID(), Principal: &account.Ref{ID: c.Key.ID}, Owner: f.owner,
		Bindings: []string{account.BindingKubernetes}}
	if f.bindings != nil && len(*f.bindings) > 0 {
		e.Bindings = *f.bindings
	}
	if f.name != nil {
		e.Name = *f.name
	}
	f.requireOwner(c, b)
	facts, err := h.complete(c, b, f, &e)
	if err := b.err(err); err != nil {
		return err
	}
	if err := h.admitExport(c, &e, facts); err != nil {
		return err
	}
	created, err := h.store.CreateEndpoint(c.Context(), e, facts)
	return h.kind().answer(c, http.StatusCreated, created, err)
}

// complete sets the fields of a new endpoint. The error lists rules that are not among the
// field errors of the body.
func (h *endpointHandlers) complete(
	c *call, b *body, f endpointFields, e *account.Endpoint,
) (facts account.PolicyFacts, err error) {
	if len(e.Bindings) != 1 {
		b.top.reject("bindings", strings.Join(e.Bindings, ","),
			"an endpoint has exactly one binding: kubernetes, internal, public or clusterset")
		return facts, nil
	}
	if f.url == nil {
		b.top.reject("url", "", "is required, for example http://shop.demo")
		return facts, nil
	}
	u, err := account.ParseBindingURL(e.Bindings[0], *f.url)
	if err != nil {
		return facts, err
	}
	e.URL, e.Scheme, e.Host, e.Port = u.String(), u.Scheme, u.Host, u.Port
	if f.TrafficPolicy != nil {
		text, fields := h.restorePolicy(c, *f.TrafficPolicy, "")
		b.fieldErrors = append(b.fieldErrors, fields...)
		f.TrafficPolicy = &text
	}
	if *e, err = f.Apply(*e); err != nil || len(b.fieldErrors) > 0 {
		return facts, err
	}
	return h.checkPolicy(e.TrafficPolicy, e)
}

func (h *endpointHandlers) update(c *call) error {
	b, f, err := readEndpointFields(c)
	if err != nil {
		return err
	}
	var patched *account.Endpoint
	for range maxPolicyAttempts {
		if patched, err = h.patch(c, b, f); account.CodeOf(err) != account.CodeChanged {
			break
		}
	}
	return h.kind().answer(c, http.StatusOK, patched, err)
}

// maxPolicyAttempts limits how often a patch is applied when the policy, whose secrets its
// redaction marks stand for, changes between reading and writing.
const maxPolicyAttempts = 3

func (h *endpointHandlers) patch(c *call, b *body, f endpointFields) (*account.Endpoint, error) {
	existing, err := h.read(c, c.ID())
	if err != nil {
		return nil, err
	}
	if existing.Type != account.TypeCloud { // the store's error names the remedy
		return h.store.PatchEndpoint(c.Context(), c.Caller(), existing.ID, account.EndpointPatch{},
			account.PolicyFacts{})
	}
	f.rejectIdentityChanges(b, existing)
	if f.owner != nil {
		f.OwnerUID = &f.owner.UID
	}
	var facts account.PolicyFacts
	if f.TrafficPolicy != nil {
		text, fields := h.restorePolicy(c, *f.TrafficPolicy, existing.TrafficPolicy)
		b.fieldErrors = append(b.fieldErrors, fields...)
		if text != *f.TrafficPolicy {
			f.ExpectedPolicy = &existing.TrafficPolicy
		}
		f.TrafficPolicy = &text
	}
	after, err := f.Apply(*existing)
	if err == nil && f.TrafficPolicy != nil && len(b.fieldErrors) == 0 {
		facts, err = h.checkPolicy(after.TrafficPolicy, existing)
	}
	if err := b.err(err); err != nil {
		return nil, err
	}
	if err := c.checkExport(existing, facts, valueOf(f.BackendID)); err != nil {
		return nil, err
	}
	return h.store.PatchEndpoint(c.Context(), c.Caller(), existing.ID, f.EndpointPatch, facts)
}

// rejectIdentityChanges rejects another type, URL, binding or name. Empty values are ignored,
// because generated clients send them.
func (f *endpointFields) rejectIdentityChanges(b *body, e *account.Endpoint) {
	const rule = "does not change; delete the endpoint and make another one, or leave it out"
	if f.kind != nil && *f.kind != "" && *f.kind != e.Type {
		b.top.reject("type", *f.kind, rule)
	}
	if f.owner != nil && !f.owner.Is(e.Owner) {
		b.top.reject("owner", f.owner.String(), rule)
	}
	if f.name != nil && *f.name != e.Name {
		b.top.reject("name", *f.name, rule)
	}
	if f.bindings != nil && len(*f.bindings) > 0 && (len(*f.bindings) != 1 || (*f.bindings)[0] != e.Bindings[0]) {
		b.top.reject("bindings", strings.Join(*f.bindings, ","), rule)
	}
	if f.url != nil && *f.url != "" {
		if u, err := account.ParseBindingURL(e.Bindings[0], *f.url); err != nil || u.String() != e.URL {
			b.top.reject("url", *f.url, rule)
		}
	}
}

// restorePolicy replaces redaction marks in the text by the secrets of the stored policy for which
// a GET showed them.
func (h *endpointHandlers) restorePolicy(
	c *call, text, stored string,
) (restored string, fieldErrors []account.FieldError) {
	if len(text) > account.MaxTrafficPolicy {
		return text, nil // Apply rejects it
	}
	restored, err := redact.Restore(text, stored, h.redactionMark(c.AccountID()))
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
func (h *endpointHandlers) checkPolicy(text string, e *account.Endpoint) (account.PolicyFacts, error) {
	switch {
	case text == "":
		return account.PolicyFacts{}, nil
	case h.checker == nil:
		return account.PolicyFacts{},
			account.Invalid("traffic_policy", "",
				"this server does not run traffic policies; leave it out, and use backend_id")
	}
	return h.checker(text, e.Scheme, e.Bindings[0])
}

func (h *endpointHandlers) redactionMark(accountID string) redact.Mark {
	return func(secret string) string { return h.redactor.RedactionMark(accountID, secret) }
}

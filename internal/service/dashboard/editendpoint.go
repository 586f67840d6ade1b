// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// bindingNames describe the bindings of the form of a new endpoint.
var bindingNames = []choice{
	{account.BindingKubernetes, "kubernetes: a Service in every cluster that selects it"},
	{account.BindingInternal, "internal: traffic policies of this account forward to it"},
	{account.BindingPublic, "public: anyone who can reach the server"},
}

// endpointFields are the fields of an endpoint of type cloud; new ones only are those that do not
// change.
func endpointFields(isNew bool) []field {
	identity := []field{
		{Name: "binding", Label: "Binding", Kind: inputChoice, Groups: []choiceGroup{{Choices: bindingNames}},
			Hint: "Who can reach it. It does not change later."},
		{Name: "url", Label: "URL", Kind: inputLine, Placeholder: "http://shop.demo",
			Hint: "kubernetes: http://NAME.NAMESPACE or tcp://NAME.NAMESPACE:PORT. internal: http://NAME.internal. " +
				"public: https://HOST, whose name leads to the server. It does not change later."},
		{Name: "name", Label: "Name", Kind: inputLine,
			Hint: "Tells the members of a pool apart. Without one, the id does. It does not change later."},
	}
	fields := []field{
		{Name: "description", Label: "Description", Kind: inputLine, Hint: "What it is for, in at most 255 bytes."},
		{Name: "backend_id", Label: "Backend", Kind: inputChoice, None: "None: the traffic policy decides",
			Hint: "Where what the traffic policy passes on goes. Leave it out if the policy forwards by itself."},
		{Name: policyField, Label: "Traffic policy", Kind: inputPolicy,
			Hint: "YAML or JSON. Secrets are shown as marks such as redacted:0123abcd: a mark that stays keeps its " +
				"secret, and text in its place is a new one."},
		{Name: "pooling_enabled", Label: "Pooled", Kind: inputFlag,
			Hint: "Others with its URL and the same traffic policy may exist beside it; each connection goes to one " +
				"of them."},
		{Name: "metadata", Label: "Metadata", Kind: inputText, Rows: 3,
			Hint: "Text for programs that read the API, in at most 4096 bytes. It has no meaning here."},
	}
	if isNew {
		return append(identity, fields...)
	}
	return fields
}

// endpointForm makes and changes endpoints of type cloud. It implements editable.
type endpointForm struct {
	store interface {
		account.Endpoints
		account.CloudEndpoints
	}
	policies *policies
	backends *backendReader
}

func (f *endpointForm) editor(audit account.AuditLog) *editor {
	return &editor{editable: f, policies: f.policies, audit: audit, noun: "cloud endpoint", nav: "endpoints",
		path: "endpoints", parent: link{"Endpoints", Path + "endpoints"}, newURL: Path + "endpoints/new",
		created: noticeEndpointCreated, updated: account.AuditEndpointUpdated,
		defaults: values{"binding": account.BindingKubernetes}}
}

func (f *endpointForm) fields(c *call, id string) ([]field, error) {
	groups, err := f.backends.choices(c, "")
	return setGroups(endpointFields(id == ""), "backend_id", groups), err
}

// load returns an endpoint that forms change: of type cloud, and not an object's.
func (f *endpointForm) load(c *call, id string) (*subject, error) {
	e, err := f.store.Endpoint(c.Context(), c.AccountID(), id)
	switch {
	case err != nil:
		return nil, err
	case e.Owner != nil:
		return nil, account.Errorf(account.CodeInvalid, "endpoint %s is changed by its object: %s", id, e.Owner)
	case e.Type != account.TypeCloud:
		return nil, account.Errorf(account.CodeInvalid, "endpoint %s is an agent's, which changes it by its flags: "+
			"start the agent with other flags", id)
	}
	shown := values{"binding": e.Bindings[0], "url": e.URL, "name": e.Name, "description": e.Description,
		"metadata": e.Metadata, "backend_id": e.BackendID, policyField: f.policies.show(c, e.TrafficPolicy)}
	if e.PoolingEnabled {
		shown["pooling_enabled"] = flagOn
	}
	return &subject{id: id, title: e.URL, updatedAt: e.UpdatedAt, shown: shown, policy: e.TrafficPolicy, object: e}, nil
}

// endpointPatch returns the change of an endpoint that the draft asks for.
func endpointPatch(d *draft) (p account.EndpointPatch) {
	for name, to := range map[string]**string{"description": &p.Description, "metadata": &p.Metadata,
		"backend_id": &p.BackendID} {
		if d.changed(name) {
			*to = new(d.mine[name])
		}
	}
	if d.changed(policyField) {
		p.TrafficPolicy = &d.policy
	}
	if d.changed("pooling_enabled") {
		p.PoolingEnabled = new(d.mine["pooling_enabled"] == flagOn)
	}
	if d.current != nil {
		p.ExpectedUpdatedAt = &d.version
	}
	return p
}

// drafted returns the endpoint that the draft leads to.
func (f *endpointForm) drafted(c *call, d *draft) (e account.Endpoint, facts account.PolicyFacts, err error) {
	var broken []account.FieldError
	if d.current != nil {
		e = *d.current.object.(*account.Endpoint)
	} else {
		e = account.Endpoint{AccountID: c.AccountID(), Principal: &account.Ref{ID: c.Key.ID}, Type: account.TypeCloud,
			Bindings: []string{d.mine["binding"]}, EndpointSettings: account.EndpointSettings{Name: d.mine["name"]}}
		u, err := parseFormURL(d.mine["binding"], d.mine["url"])
		if err != nil {
			broken = account.FieldsOf(err)
			u = account.EndpointURL{Scheme: "http", Host: "shop.demo", Port: 80} // for the other rules
			e.Bindings = []string{account.BindingKubernetes}
		}
		e.URL, e.Scheme, e.Host, e.Port = u.String(), u.Scheme, u.Host, u.Port
	}
	e, err = endpointPatch(d).Apply(e)
	broken = append(broken, account.FieldsOf(err)...)
	if len(account.FieldsOf(err)) == 0 && err != nil {
		return e, facts, err
	}
	if d.current == nil || d.changed(policyField) {
		facts, err = f.policies.check(e.TrafficPolicy, e.Scheme, e.Bindings[0])
		if err != nil && account.CodeOf(err) != account.CodeInvalid {
			return e, facts, err
		}
		broken = append(broken, account.FieldsOf(err)...)
	}
	if len(broken) > 0 {
		return e, facts, account.InvalidAll(broken)
	}
	return e, facts, nil
}

// parseFormURL reads the URL of a new endpoint.
func parseFormURL(binding, raw string) (account.EndpointURL, error) {
	raw = strings.TrimSpace(raw)
	switch {
	case raw == "":
		return account.EndpointURL{}, account.Invalid("url", "", "is required, for example http://shop.demo")
	case binding == account.BindingClusterset:
		return account.EndpointURL{}, account.Invalid("binding", binding, "must be kubernetes, internal or public")
	}
	return account.ParseBindingURL(binding, raw)
}

func (f *endpointForm) check(c *call, d *draft) error {
	_, _, err := f.drafted(c, d)
	return err
}

func (f *endpointForm) write(c *call, d *draft) (id string, err error) {
	e, facts, err := f.drafted(c, d)
	if err != nil {
		return "", err
	}
	var written *account.Endpoint
	if d.current == nil {
		written, err = f.store.CreateEndpoint(c.Context(), e, facts)
	} else {
		written, err = f.store.PatchEndpoint(c.Context(), c.Caller(), d.current.id, endpointPatch(d), facts)
	}
	if err != nil {
		return "", err
	}
	return written.ID, nil
}

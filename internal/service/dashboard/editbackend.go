// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backendFields returns the fields of a backend of the kind.
func backendFields(kind account.BackendKind) []field {
	return slices.Concat(
		[]field{{Name: "description", Label: "Description", Kind: inputLine,
			Hint: "What it is for, in at most 255 bytes. Lists show it in place of the id."}},
		kindFields(kind),
		[]field{{Name: "metadata", Label: "Metadata", Kind: inputText, Rows: 3,
			Hint: "Text for programs that read the API, in at most 4096 bytes. It has no meaning here."}})
}

func kindFields(kind account.BackendKind) []field {
	number := func(name, label, hint string) field {
		return field{Name: "health." + name, Label: label, Kind: inputLine, Numeric: true, Hint: hint}
	}
	defaults := account.HealthRule{}.WithDefaults()
	switch kind {
	case account.BackendFailover:
		return []field{
			{Name: "backends", Label: "Children", Kind: inputChildren, None: "None",
				Hint: "In the order of failover: the first that is up serves. At most 16."},
			{Name: "health.http_status", Label: "HTTP statuses that count as failure", Kind: inputLine,
				Placeholder: "502, 503", Hint: "Of a child’s answers, 200 to 599. None: only connections count."},
			number("window_seconds", "Seconds for which answers count",
				fmt.Sprintf("1 to %d; %d if empty.", account.MaxHealthWindow, defaults.WindowSeconds)),
			number("min_answers", "Answers before a child can be down",
				fmt.Sprintf("1 to %d; %d if empty.", account.MaxHealthAnswers, defaults.MinAnswers)),
			number("failure_percent", "Percent of clients that fail when a child is down",
				fmt.Sprintf("1 to 100; %d if empty.", defaults.FailurePercent)),
			number("min_clients", "Clients that fail before a child can be down",
				fmt.Sprintf("1 to %d; %d if empty.", account.MaxHealthClients, defaults.MinClients)),
		}
	case account.BackendWeighted:
		return []field{{Name: "backends", Label: "Children", Kind: inputWeights, None: "None",
			Hint: "Each gets its weight’s part of new connections and requests. A weight is 0 to 10000."}}
	case account.BackendTunnelGroup:
		return []field{{Name: "labels", Label: "Labels", Kind: inputText, Rows: 4, Placeholder: "app=api",
			Hint: "One KEY=VALUE a line. Tunnels that have all of them belong to the group."}}
	case account.BackendHTTPResponse:
		return []field{
			{Name: "status_code", Label: "Status", Kind: inputLine, Numeric: true, Hint: "From 200 to 599."},
			{Name: "headers", Label: "Headers", Kind: inputText, Rows: 4, Placeholder: "Content-Type: text/html",
				Hint: "One NAME: VALUE a line. Length and framing are set by the server."},
			{Name: "body", Label: "Body", Kind: inputText, Rows: 10, Hint: "At most 64 KiB, sent as it is."},
		}
	case account.BackendStatic:
		return []field{
			{Name: "address", Label: "Address", Kind: inputLine, Placeholder: "db.example.com:5432",
				Hint: "HOST:PORT that the server connects to. IPv6 addresses stand in brackets."},
			{Name: "tls.enabled", Label: "Connect with TLS", Kind: inputFlag,
				Hint: "The certificate has to be valid for the host."},
		}
	}
	return nil
}

// backendEditor returns the editor of backends of a kind.
func (s *server) backendEditor(kind account.BackendKind) *editor {
	list := Path + "backends?" + url.Values{"kind": {string(kind)}}.Encode()
	e := &editor{server: s, noun: backendNoun(kind), nav: "backends", path: "backends",
		parent: link{kindName(kind) + " backends", list}, newURL: Path + "backends/new/" + string(kind),
		created: noticeBackendCreated, saved: noticeBackendSaved, updated: account.AuditBackendUpdated,
		defaults: values{}}
	if kind == account.BackendHTTPResponse {
		e.defaults["status_code"] = strconv.Itoa(http.StatusOK)
	}
	e.fields = func(c *call, id string) ([]field, error) {
		fields := backendFields(kind)
		if kind != account.BackendFailover && kind != account.BackendWeighted {
			return fields, nil
		}
		groups, err := s.backendChoices(c, id)
		for i := range fields {
			if fields[i].Name == "backends" {
				fields[i].setGroups(groups)
			}
		}
		return fields, err
	}
	e.load = func(c *call, id string) (*subject, error) {
		b, err := s.opt.Store.Backend(c.Context(), c.AccountID(), kind, id)
		if err != nil {
			return nil, err
		}
		return &subject{id: id, title: backendRow{Backend: *b}.Name(), updatedAt: b.UpdatedAt,
			shown: backendValues(b), object: b}, nil
	}
	e.check = func(_ *call, d *draft) error {
		_, _, err := s.draftedBackend(kind, d)
		return err
	}
	e.write = func(c *call, d *draft) (string, error) { return s.writeBackend(c, kind, d) }
	return e
}

// backendValues returns the values of the form of a backend.
func backendValues(b *account.Backend) values {
	v := values{"description": b.Description, "metadata": b.Metadata}
	optional := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	switch b.Kind {
	case account.BackendFailover:
		v["backends"] = strings.Join(b.Children, "\n")
		var statuses []string
		for _, status := range b.HealthStatus {
			statuses = append(statuses, strconv.Itoa(status))
		}
		v["health.http_status"] = strings.Join(statuses, ", ")
		v["health.window_seconds"] = optional(b.HealthRule.WindowSeconds)
		v["health.min_answers"] = optional(b.HealthRule.MinAnswers)
		v["health.failure_percent"] = optional(b.HealthRule.FailurePercent)
		v["health.min_clients"] = optional(b.HealthRule.MinClients)
	case account.BackendWeighted:
		var lines []string
		for _, id := range slices.Sorted(maps.Keys(b.Weights)) {
			lines = append(lines, id+"="+strconv.Itoa(b.Weights[id]))
		}
		v["backends"] = strings.Join(lines, "\n")
	case account.BackendTunnelGroup:
		v["labels"] = strings.Join(labelList(b.Labels), "\n")
	case account.BackendHTTPResponse:
		response := cmp.Or(b.Response, &account.HTTPResponse{StatusCode: http.StatusOK})
		v["status_code"], v["body"] = strconv.Itoa(response.StatusCode), response.Body
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(response.Headers)) {
			lines = append(lines, name+": "+response.Headers[name])
		}
		v["headers"] = strings.Join(lines, "\n")
	case account.BackendStatic:
		static := cmp.Or(b.Static, &account.StaticAddress{})
		if v["address"] = static.Address; static.TLS {
			v["tls.enabled"] = flagOn
		}
	}
	return v
}

// draftedBackend returns the backend that a draft leads to, and the change.
func (s *server) draftedBackend(
	kind account.BackendKind, d *draft,
) (b account.Backend, p account.BackendPatch, err error) {
	p, broken := backendPatch(kind, d.mine)
	b = account.Backend{Kind: kind}
	if d.current != nil {
		b, p.ExpectedUpdatedAt = *d.current.object.(*account.Backend), &d.version
	}
	b, err = p.Apply(b)
	for _, f := range account.FieldsOf(err) {
		// what cannot be read is told once
		if !slices.ContainsFunc(broken, func(known account.FieldError) bool { return known.Field == f.Field }) {
			broken = append(broken, f)
		}
	}
	if p.Address != nil && len(broken) == 0 {
		broken = append(broken, account.FieldsOf(s.opt.Backends.CheckStaticAddress(b.Static.Address))...)
	}
	if len(broken) > 0 {
		return b, p, account.InvalidAll(broken)
	}
	return b, p, err
}

func (s *server) writeBackend(c *call, kind account.BackendKind, d *draft) (id string, err error) {
	b, p, err := s.draftedBackend(kind, d)
	if err != nil {
		return "", err
	}
	var written *account.Backend
	if d.current == nil {
		b.AccountID = c.AccountID()
		written, err = s.opt.Store.CreateBackend(c.Context(), c.Caller(), b)
	} else {
		written, err = s.opt.Store.PatchBackend(c.Context(), c.Caller(), kind, d.current.id, p)
	}
	if err != nil {
		return "", err
	}
	return written.ID, nil
}

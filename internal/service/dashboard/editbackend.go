// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

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

// backendForm makes and changes the backends of a kind. It implements editable.
type backendForm struct {
	kind   account.BackendKind
	reader *backendReader
}

// backendEditors are the editors of backends by kind.
type backendEditors map[account.BackendKind]*editor

func newBackendEditors(reader *backendReader, p *policies, audit account.AuditLog) backendEditors {
	all := backendEditors{}
	for _, kind := range account.BackendKinds() {
		all[kind] = &editor{editable: &backendForm{kind, reader}, policies: p, audit: audit, noun: backendNoun(kind),
			nav: "backends", path: "backends", parent: link{kindName(kind) + " backends", backendsPath(kind)},
			newURL:  Path + "backends/new/" + string(kind),
			created: noticeBackendCreated, updated: account.AuditBackendUpdated,
			defaults: values{}}
	}
	all[account.BackendHTTPResponse].defaults["status_code"] = strconv.Itoa(http.StatusOK)
	return all
}

// handler serves a step of the editor of the backend that the call names.
func (b backendEditors) handler(step func(*editor, *call) error) func(*call) error {
	return func(c *call) error {
		if e := b[backendKindOf(c.ID())]; e != nil {
			return step(e, c)
		}
		return errNoBackend(c.ID())
	}
}

func (f *backendForm) fields(c *call, id string) ([]field, error) {
	fields := backendFields(f.kind)
	if f.kind != account.BackendFailover && f.kind != account.BackendWeighted {
		return fields, nil
	}
	groups, err := f.reader.choices(c, id)
	return setGroups(fields, "backends", groups), err
}

func (f *backendForm) load(c *call, id string) (*subject, error) {
	b, err := f.reader.store.Backend(c.Context(), c.AccountID(), f.kind, id)
	if err != nil {
		return nil, err
	}
	return &subject{id: id, title: backendRow{Backend: *b}.Name(), updatedAt: b.UpdatedAt,
		shown: backendValues(b), object: b}, nil
}

func (f *backendForm) check(_ *call, d *draft) error {
	_, _, err := f.drafted(d)
	return err
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
		v["headers"] = strings.Join(pairList(response.Headers, ": "), "\n")
	case account.BackendStatic:
		static := cmp.Or(b.Static, &account.StaticAddress{})
		if v["address"] = static.Address; static.TLS {
			v["tls.enabled"] = flagOn
		}
	}
	return v
}

// drafted returns the backend that a draft leads to, and the change.
func (f *backendForm) drafted(d *draft) (b account.Backend, p account.BackendPatch, err error) {
	p, broken := backendPatch(f.kind, d.mine)
	b = account.Backend{Kind: f.kind}
	if d.current != nil {
		b, p.ExpectedUpdatedAt = *d.current.object.(*account.Backend), &d.version
	}
	b, err = p.Apply(b, time.Time{})
	for _, one := range account.FieldsOf(err) {
		// what cannot be read is told once
		if !slices.ContainsFunc(broken, func(known account.FieldError) bool { return known.Field == one.Field }) {
			broken = append(broken, one)
		}
	}
	if p.Address != nil && len(broken) == 0 {
		broken = append(broken, account.FieldsOf(f.reader.edge.CheckStaticAddress(b.Static.Address))...)
	}
	if len(broken) > 0 {
		return b, p, account.InvalidAll(broken)
	}
	return b, p, err
}

func (f *backendForm) write(c *call, d *draft) (id string, err error) {
	b, p, err := f.drafted(d)
	if err != nil {
		return "", err
	}
	var written *account.Backend
	if d.current == nil {
		b.AccountID = c.AccountID()
		written, err = f.reader.store.CreateBackend(c.Context(), c.Caller(), b)
	} else {
		written, err = f.reader.store.PatchBackend(c.Context(), c.Caller(), f.kind, d.current.id, p)
	}
	if err != nil {
		return "", err
	}
	return written.ID, nil
}

// patchReader reads the values of a form, and collects what cannot be read.
type patchReader struct {
	values
	broken []account.FieldError
}

func (r *patchReader) reject(name, value, rule string) {
	r.broken = append(r.broken, account.FieldError{Field: name, Value: account.Shorten(value), Rule: rule})
}

func (r *patchReader) text(name string) *string { return new(r.values[name]) }

// trimmed returns a value without the spaces around it.
func (r *patchReader) trimmed(name string) string { return strings.TrimSpace(r.values[name]) }

// number returns the number of a field, ifEmpty for an empty one.
func (r *patchReader) number(name string, ifEmpty int) *int {
	text := r.trimmed(name)
	if text == "" {
		return &ifEmpty
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.reject(name, text, "must be a whole number")
	}
	return &n
}

// pairs returns the lines of a field as names and values around a separator.
func (r *patchReader) pairs(name, separator, form string) *map[string]string {
	all := map[string]string{}
	for _, line := range splitLines(r.values[name]) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, value, ok := strings.Cut(line, separator)
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		_, twice := all[key]
		switch {
		case !ok || key == "":
			r.reject(name+"."+account.Shorten(strings.TrimSpace(line)), value, "must be "+form)
		case twice:
			r.reject(name+"."+account.Shorten(key), value, "is given twice; leave one out")
		}
		all[key] = value
	}
	return &all
}

// statuses returns the numbers of a list with commas or spaces between them.
func (r *patchReader) statuses(name string) *[]int {
	all := []int{}
	for _, text := range strings.FieldsFunc(r.values[name], func(c rune) bool {
		return c == ',' || c == ' ' || c == '\t' || c == '\n'
	}) {
		n, err := strconv.Atoi(text)
		if err != nil {
			r.reject(name+"["+text+"]", text, "must be an HTTP status from 200 to 599, for example 503")
			continue
		}
		all = append(all, n)
	}
	return &all
}

func (r *patchReader) weights(name string) *map[string]int {
	all := map[string]int{}
	for _, line := range splitLines(r.values[name]) {
		id, text, _ := strings.Cut(line, "=")
		n, err := strconv.Atoi(text)
		if _, twice := all[id]; twice {
			r.reject(name+"."+id, text, "is given twice; each child stands once")
		} else if err != nil {
			r.reject(name+"."+id, text, "needs a weight: a number from 0 to "+strconv.Itoa(account.MaxWeight))
		}
		all[id] = n
	}
	return &all
}

// backendPatch returns the change of a backend that a form asks for, and the fields that cannot be
// read.
func backendPatch(kind account.BackendKind, v values) (account.BackendPatch, []account.FieldError) {
	r := &patchReader{values: v}
	p := account.BackendPatch{Description: r.text("description"), Metadata: r.text("metadata")}
	switch kind {
	case account.BackendFailover:
		children := append([]string{}, splitLines(v["backends"])...)
		p.Children, p.HealthStatus = &children, r.statuses("health.http_status")
		p.HealthRule = account.HealthRulePatch{WindowSeconds: r.number("health.window_seconds", 0),
			MinAnswers: r.number("health.min_answers", 0), FailurePercent: r.number("health.failure_percent", 0),
			MinClients: r.number("health.min_clients", 0)}
	case account.BackendWeighted:
		p.Weights = r.weights("backends")
	case account.BackendTunnelGroup:
		p.Labels = r.pairs("labels", "=", "KEY=VALUE, for example app=api")
	case account.BackendHTTPResponse:
		p.StatusCode, p.Body = r.number("status_code", 200), r.text("body")
		p.Headers = r.pairs("headers", ":", "NAME: VALUE, for example Content-Type: text/html")
	case account.BackendStatic:
		p.Address, p.TLS = new(r.trimmed("address")), new(v["tls.enabled"] == flagOn)
	}
	return p, r.broken
}

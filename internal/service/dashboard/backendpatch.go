// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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

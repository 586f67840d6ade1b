// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Apply returns the changed backend, in its normal form, without touching b. CodeInvalid lists
// every rule that the result breaks; which children there are is the store's affair.
func (p BackendPatch) Apply(b Backend, _ time.Time) (Backend, error) {
	set(&b.Description, p.Description)
	set(&b.Metadata, p.Metadata)
	var r rules
	r.text("description", b.Description, MaxDescription)
	r.text("metadata", b.Metadata, MaxMetadata)
	switch b.Kind {
	case BackendFailover:
		p.applyFailover(&b, &r)
	case BackendWeighted:
		p.applyWeighted(&b, &r)
	case BackendTunnelGroup:
		set(&b.Labels, p.Labels)
		r = append(r, FieldsOf(ValidateLabels(b.Labels))...)
	case BackendHTTPResponse:
		p.applyResponse(&b, &r)
	case BackendStatic:
		p.applyStatic(&b, &r)
	default:
		r.add("kind", string(b.Kind), "names no kind of backends")
	}
	return b, r.err()
}

func (p BackendPatch) applyFailover(b *Backend, r *rules) {
	set(&b.Children, p.Children)
	set(&b.HealthStatus, p.HealthStatus)
	r.children(len(b.Children))
	for i, id := range b.Children {
		if slices.Contains(b.Children[:i], id) {
			r.add("backends["+strconv.Itoa(i)+"]", id,
				"is given twice; each child stands once, in the order of failover")
		}
	}
	if n := len(b.HealthStatus); n > MaxHealthStatuses {
		r.add("health.http_status", "", fmt.Sprintf("has %d statuses; at most %d are allowed", n, MaxHealthStatuses))
	}
	for i, status := range b.HealthStatus {
		if status < 200 || status > 599 {
			r.add("health.http_status["+strconv.Itoa(i)+"]", strconv.Itoa(status),
				"must be an HTTP status from 200 to 599, for example 503")
		}
	}
	b.HealthStatus = slices.Compact(slices.Sorted(slices.Values(b.HealthStatus)))
	p.HealthRule.apply(&b.HealthRule, r)
}

func (p HealthRulePatch) apply(h *HealthRule, r *rules) {
	for _, f := range []struct {
		name string
		to   *int
		from *int
		most int
	}{
		{"window_seconds", &h.WindowSeconds, p.WindowSeconds, MaxHealthWindow},
		{"min_answers", &h.MinAnswers, p.MinAnswers, MaxHealthAnswers},
		{"failure_percent", &h.FailurePercent, p.FailurePercent, 100},
		{"min_clients", &h.MinClients, p.MinClients, MaxHealthClients},
	} {
		set(f.to, f.from)
		if *f.to < 0 || *f.to > f.most {
			rule := fmt.Sprintf("must be a number from 1 to %d; 0 is the default", f.most)
			r.add("health."+f.name, strconv.Itoa(*f.to), rule)
		}
	}
}

func (p BackendPatch) applyWeighted(b *Backend, r *rules) {
	set(&b.Weights, p.Weights)
	r.children(len(b.Weights))
	all := 0
	for _, id := range slices.Sorted(maps.Keys(b.Weights)) {
		weight := b.Weights[id]
		if weight < 0 || weight > MaxWeight {
			r.add("backends."+id, strconv.Itoa(weight), fmt.Sprintf("must be a weight from 0 to %d", MaxWeight))
		}
		all += weight
	}
	if len(b.Weights) > 0 && all == 0 {
		r.add("backends", "", "no child has a weight above 0, so none would be chosen; give at least one")
	}
}

func (r *rules) children(n int) {
	switch {
	case n == 0:
		r.add("backends", "", fmt.Sprintf("at least one backend is required, and at most %d are allowed",
			MaxBackendChildren))
	case n > MaxBackendChildren:
		r.add("backends", "", fmt.Sprintf("has %d backends; at most %d are allowed", n, MaxBackendChildren))
	}
}

func (p BackendPatch) applyResponse(b *Backend, r *rules) {
	response := HTTPResponse{StatusCode: 200}
	if b.Response != nil {
		response = *b.Response
	}
	set(&response.StatusCode, p.StatusCode)
	set(&response.Headers, p.Headers)
	if len(response.Headers) == 0 {
		response.Headers = nil
	}
	set(&response.Body, p.Body)
	b.Response = &response
	switch code := response.StatusCode; {
	case code < 200 || code > 599:
		r.add("status_code", strconv.Itoa(code), "must be the status of a whole answer, from 200 to 599")
	case (code == 204 || code == 304) && response.Body != "":
		r.add("body", response.Body,
			fmt.Sprintf("an answer %d has no body; leave it out, or choose another status_code",
				code))
	}
	r.text("body", response.Body, MaxResponseBody)
	if n := len(response.Headers); n > MaxResponseHeaders {
		r.add("headers", "", fmt.Sprintf("has %d headers; at most %d are allowed", n, MaxResponseHeaders))
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(response.Headers)) {
		if rule := brokenHeader(name, response.Headers[name], seen); rule != "" {
			r.add("headers."+Shorten(name), response.Headers[name], rule)
		}
	}
}

// framingHeaders are the headers that frame an answer or belong to one connection; the edge sets
// them itself.
var framingHeaders = []string{
	"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

func brokenHeader(name, value string, seen map[string]bool) string {
	lower := strings.ToLower(name)
	twice := seen[lower]
	seen[lower] = true
	switch {
	case name == "" || len(name) > MaxName || strings.ContainsFunc(name, notToken):
		return fmt.Sprintf("the name must have 1 to %d letters, digits or characters of !#$%%&'*+-.^_`|~", MaxName)
	case slices.Contains(framingHeaders, lower) || IsReservedHeader(name):
		return "the edge sets this header itself; leave it out"
	case twice:
		return "is given twice; the case of the letters does not tell headers apart"
	case len(value) > MaxHeaderValue:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(value), MaxHeaderValue)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool {
		return c < ' ' && c != '\t' || c == 0x7f
	}) || strings.TrimSpace(value) != value:
		return "the value must be text on one line, without spaces around it"
	}
	return ""
}

// notToken reports whether c cannot stand in the name of a header (RFC 9110, section 5.6.2).
func notToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
		!strings.ContainsRune("!#$%&'*+-.^_`|~",
			c)
}

func (p BackendPatch) applyStatic(b *Backend, r *rules) {
	var static StaticAddress
	if b.Static != nil {
		static = *b.Static
	}
	set(&static.Address, p.Address)
	set(&static.TLS, p.TLS)
	if normal, ok := staticAddress(static.Address); ok {
		static.Address = normal
	} else {
		r.add("address", static.Address,
			"must be HOST:PORT: a host name or an IP address (IPv6 in brackets), and a port from 1 to 65535, for "+
				"example "+
				"db.example.com:5432")
	}
	b.Static = &static
}

// staticAddress reads host:port and returns it in lower case.
func staticAddress(raw string) (normal string, ok bool) {
	i := strings.LastIndexByte(raw, ':')
	if i < 0 {
		return "", false
	}
	host, port := strings.ToLower(raw[:i]), raw[i+1:]
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return "", false
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		return "[" + addr.String() + "]:" + port, true
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String() + ":" + port, addr.Is4()
	}
	return host + ":" + port, validHost(host)
}

// validHost reports whether host is a name that can be looked up. A last label of digits would be
// read as part of an IP address.
func validHost(host string) bool {
	if len(host) > MaxShortText {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !validLabel(strings.ReplaceAll(label, "_", "-")) {
			return false
		}
	}
	return strings.ContainsFunc(labels[len(labels)-1], func(c rune) bool { return c < '0' || c > '9' })
}

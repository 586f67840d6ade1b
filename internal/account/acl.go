// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"slices"
	"strings"
)

// ACL are the rules of a credential for tunnel sessions: what it may do. Each is a verb and a
// pattern, in which "*" stands for any run of characters. An authtoken has rules "bind:<url>",
// "bind:<label>=<value>", "connect:<operator id>" and "connect:<url>"; an API key of ScopeExporter
// has "export:<namespace>/<name>", "bind:<url>", "backend:<id>" and "internal:<host>".
type ACL []string

// MayBind reports whether a rule admits the endpoint URL.
func (a ACL) MayBind(url string) bool { return a.admits("bind:", url) }

// MayConnect reports whether a rule lets a forwarder act for the operator.
func (a ACL) MayConnect(operatorID string) bool { return a.admits("connect:", operatorID) }

// MayCall reports whether a rule admits calls of the endpoint URL without an operator: one with a
// pattern of URLs, or connect:*.
func (a ACL) MayCall(url string) bool {
	return slices.ContainsFunc(a, func(rule string) bool {
		pattern, ok := strings.CutPrefix(rule, "connect:")
		return ok && (pattern == "*" || isURLPattern(pattern)) && MatchPattern(pattern, url)
	})
}

// isURLPattern tells a pattern of URLs from one of operator ids.
func isURLPattern(pattern string) bool { return strings.Contains(pattern, "://") }

// MayExport reports whether a rule admits endpoints of the object.
func (a ACL) MayExport(namespace, name string) bool { return a.admits("export:", namespace+"/"+name) }

// MayUseBackend reports whether a rule lets endpoints forward to the backend.
func (a ACL) MayUseBackend(id string) bool { return a.admits("backend:", id) }

// MayForwardInternal reports whether a rule lets traffic policies forward to internal endpoints at
// the host, one of PolicyFacts.InternalHosts.
func (a ACL) MayForwardInternal(host string) bool { return a.admits("internal:", host) }

func (a ACL) admits(verb, subject string) bool {
	return slices.ContainsFunc(a, func(rule string) bool {
		pattern, ok := strings.CutPrefix(rule, verb)
		return ok && MatchPattern(pattern, subject)
	})
}

// HasVerb reports whether there is a rule of the verb, such as "bind".
func (a ACL) HasVerb(verb string) bool {
	return slices.ContainsFunc(a, func(rule string) bool { return strings.HasPrefix(rule, verb+":") })
}

// MayBindLabels reports whether the rules admit a tunnel with these labels: each of them is
// admitted by a rule bind:<label>=<value>, in which "*" stands for any run of characters, or by
// bind:*.
func (a ACL) MayBindLabels(labels map[string]string) bool {
	for key, value := range labels {
		if !slices.ContainsFunc(a, func(rule string) bool { return admitsLabel(rule, key, value) }) {
			return false
		}
	}
	return true
}

func admitsLabel(rule, key, value string) bool {
	pattern, ok := strings.CutPrefix(rule, "bind:")
	if !ok || pattern == "*" {
		return ok
	}
	keyPattern, valuePattern, ok := cutLabelRule(pattern)
	return ok && MatchPattern(keyPattern, key) && MatchPattern(valuePattern, value)
}

// MatchPattern matches s against a pattern whose "*" stands for any run of characters. Linear in
// the usual case, without backtracking over more than one star.
func MatchPattern(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) || !strings.HasSuffix(s[len(first):], last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of further text fields, in bytes, and of lists.
const (
	MaxUpstreamURL = 2048
	MaxSealKey     = 64
	MaxHostMode    = 255
	MaxRegion      = 64
	MaxShortText   = 253 // names, versions, cluster uid, ingress endpoint
	MaxSelector    = 8192
	MaxSelectors   = 16
	MaxACLRules    = 64
	MaxACLRule     = 512
)

// rules collects the broken rules of a value.
type rules []FieldError

func (r *rules) add(field, value, rule string) {
	*r = append(*r, FieldError{Field: field, Value: Shorten(value), Rule: rule})
}

// text checks what holds for every text: length in bytes, valid UTF-8, no NUL.
func (r *rules) text(field, value string, maxBytes int) {
	switch {
	case !utf8.ValidString(value):
		r.add(field, value, "must be valid UTF-8")
	case strings.ContainsRune(value, 0):
		r.add(field, value, "must not contain the NUL character")
	case len(value) > maxBytes:
		r.add(field, value, fmt.Sprintf("has %d bytes; at most %d are allowed", len(value), maxBytes))
	}
}

func (r rules) err() error {
	if len(r) == 0 {
		return nil
	}
	return InvalidAll(r)
}

// Shorten cuts a value to about 64 bytes of valid UTF-8, so that an error can show it.
func Shorten(value string) string {
	const most = 64
	long := len(value) > most
	if long {
		value = value[:most]
		for i := 1; i < utf8.UTFMax && len(value) > i; i++ { // not in the middle of a character
			if utf8.RuneStart(value[len(value)-i]) {
				if !utf8.FullRuneInString(value[len(value)-i:]) {
					value = value[:len(value)-i]
				}
				break
			}
		}
	}
	value = strings.ToValidUTF8(value, "?")
	if long {
		value += "…"
	}
	return value
}

// Validate checks a session's texts and lists every broken rule as CodeInvalid.
func (s *TunnelSession) Validate() error {
	var r rules
	if !ValidID(PrefixTunnelSession, s.ID) {
		r.add("id", s.ID, "must be an identifier of a tunnel session")
	}
	r.text("agent_version", s.AgentVersion, MaxShortText)
	r.text("ip", s.IP, MaxShortText)
	r.text("metadata", s.Metadata, MaxMetadata)
	r.text("os", s.OS, MaxShortText)
	r.text("region", s.Region, MaxRegion)
	r.text("transport", s.Transport, MaxShortText)
	r.text("instance_id", s.InstanceID, MaxShortText)
	r.text("server_id", s.ServerID, MaxShortText)
	return r.err()
}

// Validate checks an operator and lists every broken rule as CodeInvalid.
func (o *Operator) Validate() error {
	var r rules
	r.text("description", o.Description, MaxDescription)
	r.text("metadata", o.Metadata, MaxMetadata)
	r.text("region", o.Region, MaxRegion)
	r.text("cluster_uid", o.ClusterUID, MaxShortText)
	r.text("deployment.name", o.Deployment.Name, MaxShortText)
	r.text("deployment.namespace", o.Deployment.Namespace, MaxShortText)
	r.text("deployment.version", o.Deployment.Version, MaxShortText)
	r.text("deployment.cluster_name", o.Deployment.ClusterName, MaxShortText)
	if o.ClusterUID != "" {
		for _, f := range []FieldError{{Field: "deployment.name", Value: o.Deployment.Name},
			{Field: "deployment.namespace", Value: o.Deployment.Namespace}} {
			if f.Value == "" {
				r.add(f.Field, "",
					"is required with cluster_uid: cluster uid, namespace and name identify the installation")
			}
		}
	}
	for i, feature := range o.EnabledFeatures {
		if !slices.Contains(Features(), feature) || slices.Contains(o.EnabledFeatures[:i], feature) {
			r.add("enabled_features["+strconv.Itoa(i)+"]", feature,
				"must be one of "+strings.Join(Features(), ", ")+", each at most once")
		}
	}
	o.validateBinding(&r)
	return r.err()
}

func (o *Operator) validateBinding(r *rules) {
	if o.Binding == nil {
		return
	}
	r.text("binding.ingress_endpoint", o.Binding.IngressEndpoint, MaxShortText)
	if n := len(o.Binding.EndpointSelectors); n > MaxSelectors {
		r.add("binding.endpoint_selectors", "",
			fmt.Sprintf("has %d selectors; at most %d are allowed", n, MaxSelectors))
		return
	}
	for i, s := range o.Binding.EndpointSelectors {
		r.text("binding.endpoint_selectors["+strconv.Itoa(i)+"]", s, MaxSelector)
	}
}

// ValidateScopes checks the scopes of an API key: at least one, each known, none twice, and
// ScopeExporter alone. CodeInvalid otherwise.
func ValidateScopes(scopes []Scope) error {
	var r rules
	if len(scopes) == 0 {
		r.add("scopes", "", "at least one is required: admin, read, operator, identities or exporter")
	}
	for i, s := range scopes {
		switch {
		case !slices.Contains(Scopes(), s):
			r.add("scopes", string(s), "must be admin, read, operator, identities or exporter")
		case slices.Contains(scopes[:i], s):
			r.add("scopes", string(s), "is given twice")
		case s == ScopeExporter && len(scopes) > 1:
			r.add("scopes", string(s), "goes with no other scope: make another key for those")
		}
	}
	return r.err()
}

// NormaliseACL checks the rules of an authtoken and returns them in the form that URLs are matched
// against: lower case, without the port that the scheme implies. Rules about labels stay as they
// are. A rule that could never match anything is refused with CodeInvalid.
func NormaliseACL(acl []string) (ACL, error) { return normaliseACL(acl, normaliseRule) }

// normaliseACL checks rules by a function for the verb and the pattern of one, which returns the
// normal form of the pattern, or what is wrong.
func normaliseACL(acl []string, normalise func(verb, pattern string) (normal, problem string)) (ACL, error) {
	var r rules
	if len(acl) > MaxACLRules {
		r.add("acl", "", fmt.Sprintf("has %d rules; at most %d are allowed", len(acl), MaxACLRules))
		return nil, r.err()
	}
	out := make(ACL, 0, len(acl))
	for _, rule := range acl {
		verb, pattern, _ := strings.Cut(rule, ":")
		problem := brokenRule(rule, pattern)
		if problem == "" {
			pattern, problem = normalise(verb, pattern)
		}
		if problem != "" {
			r.add("acl", rule, problem)
			continue
		}
		if normal := verb + ":" + pattern; !slices.Contains(out, normal) {
			out = append(out, normal)
		}
	}
	return out, r.err()
}

// brokenRule returns what is wrong with the text of a rule, or "".
func brokenRule(rule, pattern string) string {
	if len(rule) > MaxACLRule {
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(rule), MaxACLRule)
	}
	for i := range len(pattern) {
		if pattern[i] <= ' ' || pattern[i] >= 0x7f {
			return "only printable ASCII characters are allowed"
		}
	}
	return ""
}

func normaliseRule(verb, pattern string) (normal, problem string) {
	if pattern == "" || verb != "bind" && verb != "connect" {
		return "",
			"must be bind:<url pattern>, bind:<label>=<value>, connect:<operator id pattern> or " +
				"connect:<url pattern>, for example bind:http://*.demo"
	}
	if key, value, ok := cutLabelRule(pattern); ok && verb == "bind" {
		return pattern, brokenLabelRule(key, value)
	}
	pattern = strings.ToLower(pattern)
	switch {
	case verb == "bind":
		return normaliseURLPattern(pattern, parseRuleURL)
	case isURLPattern(pattern):
		return normaliseURLPattern(pattern, ParseEndpointURL)
	case !strings.Contains(pattern, "*") && !ValidID(PrefixOperator, pattern):
		return "", "names no operator id and no URL; use connect:*, connect:op-… or connect:http://…"
	}
	return pattern, ""
}

// normaliseURLPattern returns the normal form of a pattern of URLs in lower case, or why it could
// never match. parse reads a URL that rules of the verb are about.
func normaliseURLPattern(pattern string, parse func(string) (EndpointURL, error)) (normal, problem string) {
	if strings.Contains(pattern, "*") {
		return pattern, ""
	}
	u, err := parse(pattern)
	if err != nil {
		return "", "could never match: " + FirstRule(err)
	}
	return u.String(), ""
}

// FirstRule returns the first broken rule of a CodeInvalid error, or the error's text.
func FirstRule(err error) string {
	if fields := FieldsOf(err); len(fields) > 0 {
		return fields[0].Rule
	}
	return err.Error()
}

// ValidateSecret checks a secret that an administrator chose for a bootstrap file: the prefix and
// 32 to 128 characters of a-z, A-Z, 0-9, '-' and '_'. The secret is not part of the error.
func ValidateSecret(field, prefix, secret string) error {
	rest, ok := strings.CutPrefix(secret, prefix)
	if !ok {
		return Invalid(field, NotShown, "must begin with "+prefix)
	}
	wrong := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	}
	if len(rest) < 32 || len(rest) > 128 || strings.ContainsFunc(rest, wrong) {
		return Invalid(field, NotShown,
			"after "+prefix+" it needs 32 to 128 random characters of a-z, A-Z, 0-9, '-' and '_'")
	}
	return nil
}

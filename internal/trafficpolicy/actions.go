// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"slices"
	"strings"
)

// action does what a rule says. The instance is made when the policy is compiled and serves every
// connection and request, at the same time.
type action interface {
	// provision reads and checks the config; mistakes are reported to it.
	provision(c *config)
	// serve runs the action. It answers (x.refuse, x.respond, x.forwardTo), which ends the phase, or
	// calls x.next once, after which the rest of the phase and, for a request, the whole answer are
	// done.
	serve(x *exchange)
}

// kind is one row of the table of actions.
type kind struct {
	name     string
	phases   []phase
	protects bool // applies when an expression of its rule cannot be evaluated
	make     func() action
}

var (
	requests  = []phase{onHTTPRequest}
	both      = []phase{onHTTPRequest, onHTTPResponse}
	forwards  = []phase{onTCPConnect, onHTTPRequest}
	everyKind = []kind{
		{"add-headers", both, false, func() action { return new(addHeaders) }},
		{"basic-auth", requests, true, func() action { return new(basicAuth) }},
		{"custom-response", both, false, func() action { return new(customResponse) }},
		{"deny", forwards, true, func() action { return new(deny) }},
		{"forward-backend", forwards, false, func() action { return new(forwardBackend) }},
		{"forward-internal", forwards, false, func() action { return new(forwardInternal) }},
		{"oauth", requests, true, newLogin(LoginOAuth, "oauth")},
		{"openid-connect", requests, true, newLogin(LoginOIDC, "oidc")},
		{"rate-limit", requests, false, func() action { return new(rateLimit) }},
		{"redirect", requests, false, func() action { return new(redirect) }},
		{"remove-headers", both, false, func() action { return new(removeHeaders) }},
		{"restrict-ips", forwards, true, func() action { return new(restrictIPs) }},
		{"saml", requests, true, newLogin(LoginSAML, "saml")},
		{"url-rewrite", requests, false, func() action { return new(urlRewrite) }},
	}
)

// later are actions of other products' documents that this version does not have.
var later = []string{
	"circuit-breaker", "close-connection", "compress-response", "http-request", "jwt-validation", "log",
	"owasp-crs-request", "owasp-crs-response", "set-vars", "terminate-tls", "verify-webhook",
}

func kindOf(name string) *kind {
	if i := slices.IndexFunc(everyKind, func(k kind) bool { return k.name == name }); i >= 0 {
		return &everyKind[i]
	}
	return nil
}

func unknownAction(name string) string {
	if slices.Contains(later, name) {
		return fmt.Sprintf("the action %q is not offered by this version", name)
	}
	names := make([]string, len(everyKind))
	for i, k := range everyKind {
		names[i] = k.name
	}
	return fmt.Sprintf("there is no action %q; there are %s", shorten(name), strings.Join(names, ", "))
}

func (k *kind) where() string {
	names := make([]string, len(k.phases))
	for i, p := range k.phases {
		names[i] = p.String()
	}
	return strings.Join(names, " and ")
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"slices"
	"strings"
)

// action is one action of a rule. The instance is made when the policy is compiled and serves all
// connections and requests, concurrently.
type action interface {
	// provision reads and checks the config; mistakes are reported to it.
	provision(c *config)
	// serve runs the action. It answers (x.refuse, x.respond, x.forwardTo), which ends the phase,
	// or calls x.next once, after which the rest of the phase and, for a request, the whole answer
	// are done.
	serve(x *exchange)
}

// actionType is one row of the table of actions.
type actionType struct {
	name       string
	phases     []phase
	failClosed bool // applies when an expression of its rule cannot be evaluated
	make       func() action
}

// actionTypes is the closed list of actions, sorted by name.
var actionTypes = []actionType{
	{"add-headers", requestAndResponse, false, func() action { return new(addHeaders) }},
	{"basic-auth", requestPhase, true, func() action { return new(basicAuth) }},
	{"custom-response", requestAndResponse, false, func() action { return new(customResponse) }},
	{"deny", connectAndRequest, true, func() action { return new(deny) }},
	{"forward-backend", connectAndRequest, false, func() action { return new(forwardBackend) }},
	{"forward-internal", connectAndRequest, false, func() action { return new(forwardInternal) }},
	{"oauth", requestPhase, true, newLogin(LoginOAuth, "oauth")},
	{"openid-connect", requestPhase, true, newLogin(LoginOIDC, "oidc")},
	{"rate-limit", requestPhase, false, func() action { return new(rateLimit) }},
	{"redirect", requestPhase, false, func() action { return new(redirect) }},
	{"remove-headers", requestAndResponse, false, func() action { return new(removeHeaders) }},
	{"restrict-ips", connectAndRequest, true, func() action { return new(restrictIPs) }},
	{"saml", requestPhase, true, newLogin(LoginSAML, "saml")},
	{"url-rewrite", requestPhase, false, func() action { return new(urlRewrite) }},
}

// unsupportedActions are actions of other products' documents that this version does not have.
var unsupportedActions = []string{
	"circuit-breaker", "close-connection", "compress-response", "http-request", "jwt-validation", "log",
	"owasp-crs-request", "owasp-crs-response", "set-vars", "terminate-tls", "verify-webhook",
}

func actionTypeNamed(name string) *actionType {
	if i := slices.IndexFunc(actionTypes, func(k actionType) bool { return k.name == name }); i >= 0 {
		return &actionTypes[i]
	}
	return nil
}

func unknownActionMessage(name string) string {
	if slices.Contains(unsupportedActions, name) {
		return fmt.Sprintf("the action %q is not offered by this version", name)
	}
	names := make([]string, len(actionTypes))
	for i, k := range actionTypes {
		names[i] = k.name
	}
	return fmt.Sprintf("there is no action %q; there are %s", truncate(name), strings.Join(names, ", "))
}

func (k *actionType) phaseNames() string {
	names := make([]string, len(k.phases))
	for i, p := range k.phases {
		names[i] = p.String()
	}
	return strings.Join(names, " and ")
}

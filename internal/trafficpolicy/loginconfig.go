// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	celast "github.com/google/cel-go/common/ast"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of login actions.
const (
	maxScopes      = 32
	maxAuthzParams = 16
	maxLoginGroups = 256
	maxLoginText   = 2048 // bytes of an id, a secret, a URL or a parameter
)

// oauthProviders are the providers of oauth, and hints for other well-known ones.
var oauthProviders = map[string]string{
	"github": "", "gitlab": "", "google": "", "microsoft": "",
	"amazon": useOIDC, "facebook": useOIDC, "linkedin": useOIDC, "twitch": useOIDC, "okta": useOIDC, "auth0": useOIDC,
	"keycloak": useOIDC, "apple": useOIDC,
}

const useOIDC = "the action openid-connect takes any provider that speaks OpenID Connect, by its issuer_url"

func (l *LoginConfig) provisionOAuth(c *config) {
	if l.Kind == LoginOAuth {
		if l.Provider = c.str("provider", ""); !c.has("provider") {
			c.missing("provider",
				"github, gitlab, google or microsoft; for any other there is the action openid-connect")
		} else if hint, known := oauthProviders[l.Provider]; !known || hint != "" {
			c.c.problem(c.values["provider"], l.Provider, "provider is github, gitlab, google or microsoft, not %q; %s",
				truncate(l.Provider), useOIDC)
		}
		l.IssuerURL = c.providerURL("provider_url")
	} else {
		if l.IssuerURL = c.providerURL("issuer_url"); !c.has("issuer_url") {
			c.missing("issuer_url",
				"the provider's URL, such as https://login.example.com; its /.well-known/openid-configuration says "+
					"the rest")
		}
	}
	l.ClientID, l.ClientSecret = c.secret("client_id"), c.secret("client_secret")
	if l.ClientSecret != "" {
		c.c.refuseSecret(c.keys["client_secret"], "client_secret")
	}
	l.AllowCORSPreflight = c.flag("allow_cors_preflight", false)
	if c.has("require_auth_time") {
		required := c.flag("require_auth_time", true)
		if l.RequireAuthTime = &required; required && l.Provider == "github" {
			c.c.problem(c.values["require_auth_time"], "true", "GitHub never says when it asked for the password")
		}
	}
	for _, item := range c.items("scopes", maxScopes) {
		if item.Value == "" || strings.ContainsFunc(item.Value, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '"' || r == '\\'
		}) {
			c.c.problem(item, item.Value, "a scope is one word of printable ASCII")
		}
		l.Scopes = append(l.Scopes, item.Value)
	}
	l.provisionParams(c)
}

// ownParams are the parameters of an authorization request that a policy cannot set.
var ownParams = []string{
	"client_id", "client_secret", "code_challenge", "code_challenge_method", "nonce", "redirect_uri", "request",
	"request_uri", "response_mode", "response_type", "scope", "state",
}

func (l *LoginConfig) provisionParams(c *config) {
	if !c.has("authz_url_params") {
		return
	}
	o := c.c.mapping(c.values["authz_url_params"], "authz_url_params")
	if o == nil {
		return
	}
	if len(o.order) > maxAuthzParams {
		c.c.problem(o.node, "", "authz_url_params has %d entries, at most %d are allowed", len(o.order), maxAuthzParams)
		return
	}
	for _, name := range o.order {
		value, ok := c.c.stringValue(o.values[name], "the value of "+name)
		switch {
		case !ok:
			continue
		case slices.Contains(ownParams, strings.ToLower(name)):
			c.c.problem(o.keys[name], name, "the parameter %s is the login's own to set", name)
		case name == "" || len(name)+len(value) > maxLoginText:
			c.c.problem(o.keys[name], name, "a parameter has a name, and no more than %d bytes with its value",
				maxLoginText)
		}
		if l.AuthzURLParams == nil {
			l.AuthzURLParams = map[string]string{}
		}
		l.AuthzURLParams[name] = value
	}
}

func (l *LoginConfig) provisionSAML(c *config) {
	l.IdPMetadata, l.IdPMetadataURL = c.str("idp_metadata", ""), c.providerURL("idp_metadata_url")
	switch inline, from := c.has("idp_metadata"), c.has("idp_metadata_url"); {
	case inline && from:
		c.c.problem(c.keys["idp_metadata_url"], "idp_metadata_url",
			"give one of idp_metadata and idp_metadata_url, not both")
	case !inline && !from:
		c.missing("idp_metadata_url", "the URL of the provider's metadata; or idp_metadata, the metadata itself")
	case inline && !strings.Contains(l.IdPMetadata, "EntityDescriptor"):
		c.c.problem(c.values["idp_metadata"], "",
			"idp_metadata is the XML document that the provider offers for download: an EntityDescriptor")
	}
	l.ForceAuthn, l.AllowIdPInitiated = c.flag("force_authn", false), c.flag("allow_idp_initiated", false)
	for _, item := range c.items("authorized_groups", maxLoginGroups) {
		l.AuthorizedGroups = append(l.AuthorizedGroups, item.Value)
	}
	const nameIDs = "urn:oasis:names:tc:SAML:"
	l.NameIDFormat = c.str("nameid_format", nameIDs+"2.0:nameid-format:persistent")
	if !strings.HasPrefix(l.NameIDFormat, nameIDs) || len(l.NameIDFormat) > 128 {
		c.c.problem(c.values["nameid_format"], l.NameIDFormat,
			"nameid_format is a URN such as %s2.0:nameid-format:persistent", nameIDs)
	}
}

// secret reads a required text, which never appears in messages.
func (c *config) secret(key string) string {
	text := c.str(key, "")
	switch {
	case text == "" && (!c.has(key) || c.values[key].Value == ""):
		c.missing(key,
			"what the provider gave when the application was registered there; there is no application of the "+
				"service's own")
	case len(text) > maxLoginText:
		c.c.problem(c.values[key], "", "%s has at most %d bytes", key, maxLoginText)
	case strings.TrimSpace(text) != text:
		c.c.problem(c.values[key], "",
			"%s begins or ends with white space: remove it; a text that begins with | ends with a line break in YAML",
			key)
	case strings.Contains(text, "${"):
		c.c.problem(c.values[key], "", "expressions in %s are not offered by this version", key)
	}
	return text
}

// providerURL reads an optional URL of an identity provider.
func (c *config) providerURL(key string) string {
	text := c.str(key, "")
	if !c.has(key) {
		return ""
	}
	if err := checkProviderURL(key, text); err != nil {
		c.c.problem(c.values[key], "", "%v", err)
	}
	return text
}

// wellKnown is the path of a provider's discovery document below its issuer.
const wellKnown = "/.well-known/openid-configuration"

// checkProviderURL checks a URL of a provider without a request. The addresses behind it are
// checked on connection.
func checkProviderURL(key, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || len(text) > maxLoginText:
		return fmt.Errorf("%s is a URL such as https://login.example.com", key)
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), wellKnown) && key != "idp_metadata_url":
		return fmt.Errorf("%s ends before %s: what stands at that address is found from it", key, wellKnown)
	case u.User != nil || u.Fragment != "" || u.RawQuery != "" && key != "idp_metadata_url":
		return fmt.Errorf("%s has no user, query or fragment", key)
	case u.Scheme == "https":
	case u.Scheme != "http" || !IsLoopbackHost(u.Hostname()):
		return fmt.Errorf("%s begins with https://; http:// is for localhost only", key)
	}
	return nil
}

// IsLoopbackHost reports whether a host is this machine, by its name or address alone.
func IsLoopbackHost(host string) bool {
	host = strings.ToLower(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}

// duration reads a text such as "15m", or a whole number of nanoseconds.
func (c *config) duration(key string, def time.Duration, none bool) time.Duration {
	if !c.has(key) {
		return def
	}
	n := c.values[key]
	var d time.Duration
	var err error
	switch n.Tag {
	case "!!int":
		var ns int64
		err = n.Decode(&ns)
		d = time.Duration(ns)
	case "!!str":
		d, err = time.ParseDuration(n.Value)
	default:
		err = fmt.Errorf("not a duration")
	}
	if err != nil || d > account.MaxSessionDuration || d < time.Second && (d != 0 || !none) {
		c.c.problem(n, scalarValue(n),
			"%s is a duration from 1s to %gh, such as 15m or 36h (there is no unit for days), or a number of "+
				"nanoseconds", key,
			account.MaxSessionDuration.Hours())
		return def
	}
	return d
}

// resultRead is where an expression reads a result of a login.
type resultRead struct {
	namespace, name string
	line, column    int
}

// resultReads are what the expressions of a document read of logins.
type resultReads []resultRead

// record records what a checked expression reads of logins. Its text begins at the character offset
// of n's value.
func (reads *resultReads) record(l lines, n *yaml.Node, offset int, text string, a *celast.AST) {
	celast.PreOrderVisit(a.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		read, ok := a.ReferenceMap()[e.ID()]
		if !ok {
			return
		}
		name := strings.TrimPrefix(read.Name, presencePrefix)
		rest, ok := strings.CutPrefix(name, "actions.")
		family, _, _ := strings.Cut(strings.TrimPrefix(rest, "ngrok."), ".")
		if !ok || !slices.Contains(loginNamespaces, family) {
			return
		}
		start := a.SourceInfo().GetStartLocation(e.ID())
		line, column := l.position(n, offset+runeOffset(text, start.Line(), start.Column()))
		*reads = append(*reads, resultRead{family, name, line, column})
	}))
}

// check returns problems for reads of results that no action of the policy sets. namespace and login
// are those of its login action.
func (reads resultReads) check(namespace string, login *yaml.Node) (problems []Problem) {
	for _, f := range reads {
		why := "the policy has no login action"
		switch {
		case f.namespace == namespace:
			continue
		case namespace != "":
			why = fmt.Sprintf("what the login action on line %d finds out is in actions.%s", login.Line, namespace)
		}
		problems = append(problems, Problem{f.line, f.column, f.name, f.name + " is never known: " + why})
	}
	return problems
}

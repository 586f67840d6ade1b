// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// dialect describes a provider and its differences from the OpenID Connect standard.
type dialect struct {
	name, url string   // for people
	issuer    string   // where discovery begins
	scopes    []string // by default
	prompt    string   // makes the provider ask again, or come as close to that as it can
	maxAge    bool     // supports max_age, and sends auth_time
	tenants   bool     // the issuer that discovery finds may be another of the same host, or a template with {tenantid}
	groups    []string // claims with groups
}

const (
	google    = "https://accounts.google.com"
	gitlab    = "https://gitlab.com"
	microsoft = "https://login.microsoftonline.com/common/v2.0"
)

// dialectOf returns the dialect of an issuer; name is "" for the action openid-connect.
func dialectOf(name, issuer string) dialect {
	d := dialect{issuer: issuer, scopes: []string{"openid", "profile", "email"}, prompt: "login", maxAge: true,
		groups: []string{"groups"}}
	switch {
	case name == "google" || issuer == google:
		d.name, d.prompt, d.maxAge = "Google", "select_account", false // it refuses prompt=login
		d.issuer = cmp.Or(d.issuer, google)
	case name == "gitlab":
		d.name, d.groups = "GitLab", []string{"groups", "groups_direct"}
		d.issuer = cmp.Or(d.issuer, gitlab)
	case name == "microsoft":
		d.name, d.maxAge, d.tenants = "Microsoft", false, true
		d.issuer = cmp.Or(d.issuer, microsoft)
	}
	d.url = d.issuer
	if u, err := url.Parse(d.issuer); err == nil && d.name == "" {
		d.name = u.Host
	}
	return d
}

// Factory returns the factory of the providers of the actions oauth and openid-connect, which share
// a cache of providers' keys.
func Factory() login.Factory {
	keys := newKeySets()
	return func(c *trafficpolicy.LoginConfig, client *http.Client) (login.Provider, error) {
		return newProvider(c, client, keys)
	}
}

func newProvider(c *trafficpolicy.LoginConfig, client *http.Client, keys *keySets) (login.Provider, error) {
	s := settings{config: c, client: client}
	switch {
	case c.Kind == trafficpolicy.LoginOAuth && c.Provider == "github":
		return newGitHub(s), nil
	case c.Kind == trafficpolicy.LoginOAuth && slices.Contains([]string{"google", "gitlab", "microsoft"}, c.Provider),
		c.Kind == trafficpolicy.LoginOIDC && c.IssuerURL != "":
		d := dialectOf(c.Provider, c.IssuerURL)
		return &provider{settings: s, dialect: d, discovery: &discovery{dialect: d, client: client, keys: keys}}, nil
	}
	return nil, fmt.Errorf("no provider %q of the kind %s", c.Provider, c.Kind)
}

// settings are common to all providers of this package.
type settings struct {
	config *trafficpolicy.LoginConfig
	client *http.Client
}

// oauth returns an OAuth 2.0 client of the endpoints.
func (s *settings) oauth(action login.Action, e oauth2.Endpoint, scopes []string) *oauth2.Config {
	return &oauth2.Config{ClientID: s.config.ClientID, ClientSecret: s.config.ClientSecret, Endpoint: e,
		RedirectURL: action.URL(login.PathCallback), Scopes: scopes}
}

// scopes returns the scopes of the policy, else the defaults, and always the required one.
func (s *settings) scopes(defaults []string, required string) []string {
	scopes := s.config.Scopes
	if len(scopes) == 0 {
		scopes = defaults
	}
	if required != "" && !slices.Contains(scopes, required) {
		scopes = append([]string{required}, scopes...)
	}
	return scopes
}

// params returns the parameters of the policy and PKCE.
func (s *settings) params(f *login.Flow) []oauth2.AuthCodeOption {
	var all []oauth2.AuthCodeOption
	for name, value := range s.config.AuthzURLParams {
		all = append(all, oauth2.SetAuthURLParam(name, value))
	}
	return append(all, oauth2.S256ChallengeOption(f.Verifier))
}

func (s *settings) scope(issuer string) string {
	return strings.Join([]string{"oauth", issuer, s.config.ClientID}, "\x00")
}

// callbackCode returns the authorization code of a callback, or the error that the provider reports
// in it.
func callbackCode(q url.Values) (code string, err error) {
	if refusal := q.Get("error"); refusal != "" {
		return "", login.RefusedError("The identity provider has not confirmed the login"+errorCodeSuffix(refusal)+".",
			fmt.Errorf("the provider answered %.100q %.200q", refusal, q.Get("error_description")))
	}
	if code = q.Get("code"); code == "" {
		return "", login.RefusedError("The identity provider's answer has no code.", nil)
	}
	return code, nil
}

// errorCodeSuffix returns an OAuth error code in parentheses; "" for text that is no such code.
func errorCodeSuffix(code string) string {
	if len(code) > 40 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return " (" + code + ")"
}

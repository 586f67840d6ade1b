// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

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

// provider is a provider that speaks OpenID Connect.
type provider struct {
	settings
	dialect   dialect
	discovery *discovery
}

var (
	_ login.CallbackProvider = (*provider)(nil)
	_ login.LogoutVerifier   = (*provider)(nil)
)

// Scope implements login.Provider.
func (p *provider) Scope() string { return p.scope(p.dialect.issuer) }

// StartFlow implements login.Provider.
func (p *provider) StartFlow(ctx context.Context, f *login.Flow, action login.Action) (login.Redirect, error) {
	d, err := p.discovery.get(ctx)
	if err != nil {
		return login.Redirect{}, login.ProviderError(err)
	}
	params := append(p.params(f), goidc.Nonce(f.Nonce))
	if f.ForceReauth {
		params = append(params, oauth2.SetAuthURLParam("prompt", p.dialect.prompt))
		if p.dialect.maxAge {
			params = append(params, oauth2.SetAuthURLParam("max_age", "0"))
		}
	}
	return login.Redirect{URL: p.oauth(action, d.endpoint, p.scopes(p.dialect.scopes, goidc.ScopeOpenID)).
		AuthCodeURL(f.State, params...)}, nil
}

// HandleCallback implements login.CallbackProvider.
func (p *provider) HandleCallback(
	ctx context.Context, r *http.Request, f *login.Flow, action login.Action,
) (*login.Authentication, error) {
	ctx = goidc.ClientContext(ctx, p.client)
	d, err := p.discovery.get(ctx)
	if err != nil {
		return nil, login.ProviderError(err)
	}
	q := r.URL.Query()
	if iss := q.Get("iss"); iss != "" && iss != d.issuer && !isTemplate(d.issuer) || iss == "" && d.issParam {
		return nil, login.RefusedError("The answer is not that of this endpoint's identity provider.",
			fmt.Errorf("the answer names the issuer %.100q, not %q", iss, d.issuer))
	}
	code, err := callbackCode(q)
	if err != nil {
		return nil, err
	}
	token, err := p.oauth(action, d.endpoint, nil).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return nil, exchangeError(err)
	}
	id, err := p.verify(ctx, d, token, f)
	if account.CodeOf(err) == account.CodeProviderFailed {
		return nil, err
	}
	if err != nil {
		return nil, login.RefusedError("The identity provider's answer is not valid for this login.", err)
	}
	claims, err := decodeClaims(id.Claims)
	if err != nil {
		return nil, login.ProviderError(fmt.Errorf("reading the ID token: %w", err))
	}
	if err := p.addUserInfo(ctx, d, token, id, claims); err != nil {
		return nil, login.ProviderError(err)
	}
	return p.authentication(id, claims)
}

// verify returns the verified ID token. Its error is CodeProviderFailed when the provider's keys
// are not available.
func (p *provider) verify(
	ctx context.Context, d *providerInfo, token *oauth2.Token, f *login.Flow,
) (*goidc.IDToken, error) {
	tokens, keys := d.verifier(p.config.ClientID, true)
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the token endpoint has sent no ID token")
	}
	id, err := tokens.Verify(ctx, raw)
	if keys.fetchErr != nil {
		return nil, login.ProviderError(keys.fetchErr)
	}
	if err != nil {
		return nil, fmt.Errorf("checking the ID token: %w", err)
	}
	if err := p.checkClaims(d, id, f); err != nil {
		return nil, err
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, fmt.Errorf("checking the access token: %w", err)
		}
	}
	return id, nil
}

// checkClaims checks the claims of an ID token that the library leaves to its callers.
func (p *provider) checkClaims(d *providerInfo, id *goidc.IDToken, f *login.Flow) error {
	var more struct {
		Party  string `json:"azp"`
		Tenant string `json:"tid"`
	}
	if err := id.Claims(&more); err != nil {
		return fmt.Errorf("reading the ID token: %w", err)
	}
	switch {
	case id.Subject == "":
		return errors.New("the ID token has no subject")
	case f.Nonce == "" || id.Nonce != f.Nonce:
		return errors.New("the ID token has another nonce")
	case more.Party != "" && more.Party != p.config.ClientID, more.Party == "" && len(id.Audience) > 1:
		return fmt.Errorf("the ID token is for another party, %.100q", more.Party)
	case isTemplate(d.issuer) && !isIssuerOfTenant(d.issuer, id.Issuer, more.Tenant):
		return fmt.Errorf("the ID token of the tenant %.100q has the issuer %.100q", more.Tenant, id.Issuer)
	case id.IssuedAt.Before(f.StartedAt.Add(-login.ClockSkew)):
		return fmt.Errorf("the ID token was issued (iat) at %s, before the login began at %s", id.IssuedAt.UTC(),
			f.StartedAt)
	}
	return checkIssuedAt(id.IssuedAt)
}

// checkIssuedAt checks the time at which a token was issued.
func checkIssuedAt(at time.Time) error {
	switch ahead := time.Until(at); {
	case at.Unix() <= 0:
		return errors.New("the token has no time of issue (iat)")
	case ahead > login.ClockSkew:
		return fmt.Errorf("the token was issued (iat) %s ahead of this server's clock", ahead.Round(time.Second))
	}
	return nil
}

// tenantID is the placeholder for a tenant's id in the issuers of providers with many.
const tenantID = "{tenantid}"

func isTemplate(issuer string) bool { return strings.Contains(issuer, tenantID) }

var guid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// isIssuerOfTenant reports whether issuer is the template with the tenant filled in.
func isIssuerOfTenant(template, issuer, tenant string) bool {
	return guid.MatchString(tenant) && issuer == strings.ReplaceAll(template, tenantID, tenant)
}

// addUserInfo adds claims of the userinfo endpoint that the ID token lacks.
func (p *provider) addUserInfo(
	ctx context.Context, d *providerInfo, token *oauth2.Token, id *goidc.IDToken, claims *personClaims,
) error {
	if claims.Email != "" && claims.Name != "" || d.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := d.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("asking for the person's details: %w", err)
	}
	if info.Subject != id.Subject {
		return errors.New("the details are those of another person")
	}
	more, err := decodeClaims(info.Claims)
	if err != nil {
		return fmt.Errorf("reading the person's details: %w", err)
	}
	claims.merge(more)
	return nil
}

func (p *provider) authentication(id *goidc.IDToken, claims *personClaims) (*login.Authentication, error) {
	identity, err := claims.identity(id.Issuer, id.Subject, p.dialect.groups)
	if err != nil {
		return nil, login.RefusedError("The identity provider sends more groups of yours than this endpoint accepts. "+
			"Its administrator can make it send fewer.",
			&login.PersonalError{Public: err.Error(), Person: identity, Cause: err})
	}
	required := p.dialect.maxAge
	if configured := p.config.RequireAuthTime; configured != nil {
		required = *configured
	}
	return &login.Authentication{AuthTimeRequired: required, Authentication: account.Authentication{
		Key:      strings.Join([]string{"oidc", id.Issuer, id.Subject}, "\x00"),
		Provider: account.IdentityProvider{Name: p.dialect.name, URL: p.dialect.url},
		Identity: identity,
		Issuer:   id.Issuer, Client: p.config.ClientID, Subject: id.Subject, SessionID: claims.SessionID,
		AuthTime: claims.authTime(),
	}}, nil
}

// VerifyLogout implements login.LogoutVerifier.
func (p *provider) VerifyLogout(ctx context.Context, r *http.Request) (login.LogoutToken, error) {
	d, err := p.discovery.get(ctx)
	if err != nil {
		return login.LogoutToken{}, login.ProviderError(err)
	}
	if isTemplate(d.issuer) {
		return login.LogoutToken{}, errors.New("the provider has many issuers: give provider_url with the tenant")
	}
	tokens, keys := d.verifier(p.config.ClientID, false)
	t, err := tokens.VerifyLogout(ctx, r.PostForm.Get("logout_token"))
	switch {
	case keys.fetchErr != nil:
		return login.LogoutToken{}, login.ProviderError(keys.fetchErr)
	case err == nil:
		if err = checkLogoutEvent(t); err == nil {
			err = checkIssuedAt(t.IssuedAt)
		}
	}
	if err != nil {
		return login.LogoutToken{}, fmt.Errorf("checking the logout token: %w", err)
	}
	return login.LogoutToken{
		Issuer: t.Issuer, Client: p.config.ClientID, Subject: t.Subject, SessionID: t.SessionID,
		ID: t.TokenID, Expires: t.Expiry,
	}, nil
}

// logoutEvent is the member of events that makes a token a logout token.
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// checkLogoutEvent requires an object as the event, as Back-Channel Logout 1.0, section 2.4, does.
func checkLogoutEvent(t *goidc.LogoutToken) error {
	var claims struct {
		Events map[string]json.RawMessage `json:"events"`
	}
	if err := t.Claims(&claims); err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	if event := claims.Events[logoutEvent]; len(event) == 0 || event[0] != '{' {
		return fmt.Errorf("events has %.100q as %s; it must be an object", event, logoutEvent)
	}
	return nil
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

// exchangeError makes the error of a code that was not exchanged. It has the error of the
// response only: whole responses may repeat secrets.
func exchangeError(err error) error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return login.ProviderError(fmt.Errorf("exchanging the code: %w", err))
	}
	cause := fmt.Errorf("exchanging the code: the provider answered %.60q %.200q, status %d", answer.ErrorCode,
		answer.ErrorDescription, answer.Response.StatusCode)
	if answer.ErrorCode == "invalid_grant" || answer.ErrorCode == "bad_verification_code" {
		return login.RefusedError("This login was used before, or has taken too long.", cause)
	}
	return login.ProviderError(cause)
}

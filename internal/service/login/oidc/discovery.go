// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Intervals of fetching a discovery document.
const (
	discoveryMaxAge  = 6 * time.Hour
	discoveryRetry   = 3 * time.Second // after a failure
	discoveryTimeout = 10 * time.Second
)

// dialect describes a provider and its differences from the OpenID Connect standard.
type dialect struct {
	name, url string   // name and url are for people.
	issuer    string   // issuer is the URL at which discovery begins.
	scopes    []string // scopes are the default ones.
	prompt    string   // prompt makes the provider ask again, or come as close to that as it can.
	maxAge    bool     // maxAge is set if the provider supports max_age, and sends auth_time.
	// tenants is set if the issuer that discovery finds may be another of the same host, or a
	// template with {tenantid}.
	tenants bool
	groups  []string // groups are the names of claims with groups.
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

// discovery reads the provider's discovery document at its first use, and again when it is old.
// While it cannot be read again, the old one is used. It is safe for concurrent use.
type discovery struct {
	dialect dialect
	client  *http.Client
	keys    *keySets

	mu   sync.Mutex
	info *providerInfo
	err  error
	next time.Time     // next is the earliest time of the next fetch.
	busy chan struct{} // busy is closed when the current fetch has ended; nil = there is none.
}

// providerInfo is the content of a discovery document.
type providerInfo struct {
	*goidc.Provider
	issuer   string // issuer may be a template.
	endpoint oauth2.Endpoint
	issParam bool // issParam is set if callbacks have the parameter iss.
	keys     *keySet
	signing  []string // signing has the algorithms of signatures.
}

// verifier returns the verifier of a client's tokens, and the keys that it verifies one token with.
func (d *providerInfo) verifier(clientID string, wait bool) (*goidc.IDTokenVerifier, *verifier) {
	keys := &verifier{keySet: d.keys, wait: wait}
	return goidc.NewVerifier(d.issuer, keys, &goidc.Config{
		ClientID: clientID, SupportedSigningAlgs: d.signing, SkipIssuerCheck: isTemplate(d.issuer),
	}), keys
}

// get returns the content of the document. It waits for a fetch only while there is none.
func (d *discovery) get(ctx context.Context) (*providerInfo, error) {
	for {
		d.mu.Lock()
		if time.Now().Before(d.next) {
			known, err := d.info, d.err
			d.mu.Unlock()
			if known != nil {
				return known, nil
			}
			return nil, err
		}
		if d.busy == nil {
			d.busy = make(chan struct{})
			go d.update(context.WithoutCancel(ctx), d.busy)
		}
		known, busy := d.info, d.busy
		d.mu.Unlock()
		if known != nil {
			return known, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("reading the provider's description: %w", ctx.Err())
		}
	}
}

func (d *discovery) update(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	found, err := d.fetch(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; err == nil {
		d.info, d.next = found, time.Now().Add(discoveryMaxAge)
	} else {
		d.next = time.Now().Add(discoveryRetry)
	}
	d.busy = nil
	close(done)
}

func (d *discovery) fetch(ctx context.Context) (*providerInfo, error) {
	ctx = goidc.ClientContext(ctx, d.client)
	issuerCtx := ctx
	if d.dialect.tenants {
		issuerCtx = goidc.InsecureIssuerURLContext(ctx, d.dialect.issuer) // checkTenant checks it
	}
	p, err := goidc.NewProvider(issuerCtx, d.dialect.issuer)
	if err != nil {
		return nil, fmt.Errorf("reading the provider's description, %s/.well-known/openid-configuration: %w",
			strings.TrimSuffix(d.dialect.issuer, "/"), err)
	}
	var more struct {
		goidc.ProviderConfig
		IssParam bool     `json:"authorization_response_iss_parameter_supported"`
		Auth     []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&more); err != nil {
		return nil, fmt.Errorf("reading the provider's description: %w", err)
	}
	if more.AuthURL == "" || more.TokenURL == "" || more.JWKSURL == "" {
		return nil, errors.New("the provider's description lacks authorization_endpoint, token_endpoint or jwks_uri")
	}
	if err := checkAuthURL(more.AuthURL); err != nil {
		return nil, err
	}
	if d.dialect.tenants {
		if err := checkTenant(d.dialect.issuer, more.IssuerURL); err != nil {
			return nil, err
		}
		p = more.NewProvider(ctx)
	}
	found := &providerInfo{
		Provider: p, issuer: more.IssuerURL, endpoint: p.Endpoint(), issParam: more.IssParam,
		keys: d.keys.forURI(more.JWKSURL, d.client),
	}
	for _, a := range algorithms {
		if slices.Contains(more.Algorithms, string(a)) {
			found.signing = append(found.signing, string(a))
		}
	}
	found.endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if len(more.Auth) > 0 && !slices.Contains(more.Auth, "client_secret_basic") &&
		slices.Contains(more.Auth, "client_secret_post") {
		found.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return found, nil
}

// checkAuthURL refuses a URL to which a browser cannot be redirected.
func checkAuthURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return errors.New("the provider's authorization_endpoint is no http URL")
	}
	return nil
}

// checkTenant refuses an issuer of another origin than the configured one.
func checkTenant(configured, issuer string) error {
	a, err := url.Parse(configured)
	if err != nil {
		return fmt.Errorf("reading the provider's URL: %w", err)
	}
	if !strings.HasPrefix(issuer, a.Scheme+"://"+a.Host+"/") {
		return fmt.Errorf("the description of %s is that of another issuer, %q", configured, issuer)
	}
	return nil
}

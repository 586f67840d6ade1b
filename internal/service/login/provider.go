// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Flow is a login in progress in one browser; it travels encrypted in that browser's cookie.
type Flow struct {
	State       string    `json:"s"`
	Nonce       string    `json:"n,omitempty"`
	Verifier    string    `json:"v,omitempty"` // Verifier is the code verifier of PKCE.
	RequestID   string    `json:"i,omitempty"` // RequestID is that of the AuthnRequest of SAML.
	ReturnTo    string    `json:"r"`           // ReturnTo has path and query of the endpoint's host.
	StartedAt   time.Time `json:"t"`           // StartedAt is a time of this server's clock.
	StoreTime   time.Time `json:"c"`           // StoreTime is the same by the store's clock.
	ForceReauth bool      `json:"f,omitempty"` // ForceReauth makes the provider ask the person again.
	// Restarts counts restarts of this login because of revocations.
	Restarts int `json:"a,omitempty"`
}

// Action identifies a login action of an endpoint. Providers build their URLs from it: from the
// endpoint's URL, never from Host but for the port.
type Action struct {
	AccountID string
	// EndpointURL is the URL, in normal form, at which the browser reaches the endpoint. Its port is
	// another than the endpoint's where one is mapped to it.
	EndpointURL string
	EntityURL   string // EntityURL is the endpoint's own URL.
	AuthID      string
}

// Names of the reserved paths of a login action.
const (
	PathCallback = "callback"
	PathACS      = "acs"
	PathFinish   = "finish"
	PathLogin    = "login"
	PathLogout   = "logout"
	PathMetadata = "metadata"
)

// URL returns https://host[:port]/_fairlead/{auth_id}/{name}.
func (a Action) URL(name string) string {
	return strings.TrimSuffix(a.EndpointURL, "/") + a.path(name)
}

// EntityID names the action to identity providers of SAML, whichever port browsers use.
func (a Action) EntityID() string { return a.EntityURL + a.path(PathMetadata) }

func (a Action) path(name string) string { return trafficpolicy.LoginPath(a.AuthID) + name }

// Redirect is the URL that the browser is sent to.
type Redirect struct {
	URL       string
	RequestID string // RequestID is that of the AuthnRequest of SAML, for the Flow.
}

// Authentication holds the statements of a provider about a person, and what is checked before they
// become a session.
type Authentication struct {
	account.Authentication

	// AuthTimeRequired refuses a zero AuthTime when ForceReauth of the flow is set.
	AuthTimeRequired bool `json:"auth_time_required,omitempty"`

	// InResponseTo is the Redirect.RequestID of SAML; "" for a login that began at the provider.
	InResponseTo string `json:"in_response_to,omitempty"`
	// Once and OnceUntil are the arguments of account.Logins.UseOnce for a SAML assertion; "" =
	// none.
	Once      string    `json:"once,omitempty"`
	OnceUntil time.Time `json:"once_until,omitzero"`
}

// Provider is an identity provider as one action configures it. It is made once for a config, and
// safe for concurrent use. Its errors for the person are *account.Error, CodeLoginFailed or
// CodeProviderFailed, with a message; the cause is logged and has no secret.
type Provider interface {
	// StartFlow returns the redirect of a new flow, and may set ForceReauth of f.
	StartFlow(ctx context.Context, f *Flow, action Action) (Redirect, error)
	// Scope identifies the provider in the scope of a session: issuer and client, or entity. It
	// makes no request, and has no secret.
	Scope() string
}

// CallbackProvider is a provider whose response the browser brings with GET …/callback.
type CallbackProvider interface {
	Provider
	HandleCallback(ctx context.Context, r *http.Request, f *Flow, action Action) (*Authentication, error)
}

// PostProvider is a provider whose response the browser posts to …/acs.
type PostProvider interface {
	Provider
	// ConsumeResponse checks the response, except for its flow: the caller finds that by
	// InResponseTo, and refuses an IdP-initiated login that the config does not allow. The caller
	// bounds the body, too.
	ConsumeResponse(ctx context.Context, r *http.Request, action Action) (*Authentication, error)
	// Metadata returns the body of GET …/metadata.
	Metadata(ctx context.Context, action Action) ([]byte, error)
}

// CertifiedProvider is a provider whose logins fail once its certificates have expired.
type CertifiedProvider interface {
	Provider
	// CertificateEnd returns the provider's name, and when the last of its certificates expires or
	// its metadata does; zero while that is unknown. It makes no request.
	CertificateEnd() (name string, end time.Time)
}

// LogoutToken is a verified logout token.
type LogoutToken struct {
	Issuer, Client     string // Issuer and Client are those of the sessions that end.
	Subject, SessionID string // Subject or SessionID may be "".
	ID                 string // ID is the token's jti.
	Expires            time.Time
}

// LogoutVerifier is a provider that posts a logout_token to …/logout when it ends a session.
type LogoutVerifier interface {
	VerifyLogout(ctx context.Context, r *http.Request) (LogoutToken, error)
}

// Factory makes the Provider of a config without any request. The client is that of NewClient:
// every request to a tenant's URL goes through it.
type Factory func(c *trafficpolicy.LoginConfig, client *http.Client) (Provider, error)

// maxProviders is how many providers are cached, with their keys; the least recently used is
// evicted.
const maxProviders = 1024

// providerCache makes a provider once for each account and config. It is safe for concurrent use.
type providerCache struct {
	factories map[trafficpolicy.LoginKind]Factory
	client    *http.Client

	mu    sync.Mutex
	byKey map[providerKey]*list.Element // byKey has elements of lru.
	lru   list.List                     // lru has *providerEntry values, the last used in front.
}

type providerKey struct{ accountID, digest string }

type providerEntry struct {
	key      providerKey
	provider Provider
}

func newProviderCache(factories map[trafficpolicy.LoginKind]Factory, client *http.Client) *providerCache {
	return &providerCache{factories: factories, client: client, byKey: make(map[providerKey]*list.Element)}
}

func (c *providerCache) newProvider(config *trafficpolicy.LoginConfig) (Provider, error) {
	factory := c.factories[config.Kind]
	if factory == nil {
		return nil, ProviderError(fmt.Errorf("this server has no provider for %s", config.Kind))
	}
	provider, err := factory(config, c.client)
	if err != nil {
		return nil, ProviderError(fmt.Errorf("setting up the provider: %w", err))
	}
	return provider, nil
}

// get returns the provider of a config. One that is not used is not cached, and does not stay
// longer.
func (c *providerCache) get(accountID string, config *trafficpolicy.LoginConfig, used bool) (Provider, error) {
	key := providerKey{accountID, config.Digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		if used {
			c.lru.MoveToFront(e)
		}
		return e.Value.(*providerEntry).provider, nil
	}
	provider, err := c.newProvider(config)
	if err != nil || !used {
		return provider, err
	}
	c.byKey[key] = c.lru.PushFront(&providerEntry{key, provider})
	if c.lru.Len() > maxProviders {
		oldest := c.lru.Remove(c.lru.Back()).(*providerEntry)
		delete(c.byKey, oldest.key)
	}
	return provider, nil
}

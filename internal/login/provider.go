// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Flow is a login that has begun in one browser; it travels sealed in that browser's cookie.
type Flow struct {
	State       string    `json:"s"`
	Nonce       string    `json:"n,omitempty"`
	Verifier    string    `json:"v,omitempty"` // of PKCE
	RequestID   string    `json:"i,omitempty"` // of SAML's AuthnRequest
	ReturnTo    string    `json:"r"`           // path and query of the endpoint's host
	StartedAt   time.Time `json:"t"`
	ForceReauth bool      `json:"f,omitempty"` // the provider must ask the person again
	// how often this login was begun anew, because sessions were revoked meanwhile
	Restarts int `json:"a,omitempty"`
}

// Action is a login action at an endpoint: what providers build their URLs from. URLs come from the
// endpoint's URL, never from Host.
type Action struct {
	AccountID   string
	EndpointURL string // in normal form
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
func (p Action) URL(name string) string {
	return strings.TrimSuffix(p.EndpointURL, "/") + p.path(name)
}

func (p Action) path(name string) string { return trafficpolicy.LoginPath(p.AuthID) + name }

// Redirect is where the browser goes.
type Redirect struct {
	URL       string
	RequestID string // SAML: the ID of the AuthnRequest, kept in the Flow
}

// Authentication is what a provider has confirmed.
type Authentication struct {
	Key      string                   `json:"key"` // account.NewLogin.Key
	Provider account.IdentityProvider `json:"provider"`
	Identity account.LoginIdentity    `json:"identity"`

	Issuer    string    `json:"issuer,omitempty"` // "" when it sends no back-channel logout
	Client    string    `json:"client,omitempty"` // of the provider, to which the person has logged in
	Subject   string    `json:"subject,omitempty"`
	SessionID string    `json:"session_id,omitempty"` // the provider's
	AuthTime  time.Time `json:"auth_time,omitzero"`   // when the provider asked the person; zero = it does not say
	NotAfter  time.Time `json:"not_after,omitzero"`   // the session ends then at the latest; zero = none

	// AuthTimeRequired is whether a zero AuthTime refuses a login for which the provider was told
	// to ask the person.
	AuthTimeRequired bool `json:"auth_time_required,omitempty"`

	InResponseTo string `json:"in_response_to,omitempty"` // SAML: Start.RequestID; "" = the provider began
	// SAML: the key of account.Logins.UseOnce, so that the assertion is used once
	Once      string    `json:"once,omitempty"`
	OnceUntil time.Time `json:"once_until,omitzero"`
}

// Provider is an identity provider as one action configures it: made once for a config, and kept.
// It is safe for concurrent use. Its errors for the person are *account.Error, CodeLoginFailed or
// CodeProviderFailed, with a sentence; the cause goes to the log, so it holds no secret.
type Provider interface {
	// StartFlow says where the browser of a new flow goes.
	StartFlow(ctx context.Context, f *Flow, at Action) (Redirect, error)
	// Scope names what a session is good for beside its place: issuer and client, or entity. It asks
	// nobody, and holds no secret.
	Scope() string
}

// CallbackProvider is one to which the browser returns with GET …/callback.
type CallbackProvider interface {
	Provider
	HandleCallback(ctx context.Context, r *http.Request, f *Flow, at Action) (*Authentication, error)
}

// PostProvider is one whose word the browser posts to …/acs.
type PostProvider interface {
	Provider
	// ConsumeResponse checks the post, all but to which flow it belongs: that is InResponseTo.
	ConsumeResponse(ctx context.Context, r *http.Request, at Action) (*Authentication, error)
	// Metadata is what GET …/metadata answers.
	Metadata(ctx context.Context, at Action) ([]byte, error)
}

// LogoutToken is the verified word of a provider that sessions have ended.
type LogoutToken struct {
	Issuer, Client     string // whose sessions end: those of the client alone
	Subject, SessionID string // one of them may be ""
	ID                 string // jti
	Expires            time.Time
}

// LogoutVerifier is a provider that posts a logout_token to …/logout when a session of its own
// ends.
type LogoutVerifier interface {
	VerifyLogout(ctx context.Context, r *http.Request) (LogoutToken, error)
}

// Factory makes the Provider of a config without asking anybody. The client is the guarded one:
// every request that a tenant's URL causes goes through it.
type Factory func(c *trafficpolicy.LoginConfig, client *http.Client) (Provider, error)

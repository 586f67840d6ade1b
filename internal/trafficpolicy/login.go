// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// LoginKind is the type of a login action.
type LoginKind string

// The kinds.
const (
	LoginOAuth LoginKind = "oauth"
	LoginOIDC  LoginKind = "openid-connect"
	LoginSAML  LoginKind = "saml"
)

// LoginConfig is the config of a login action, checked as far as that takes no request. It holds
// secrets: never log it.
type LoginConfig struct {
	Kind LoginKind
	// AuthID distinguishes the login actions of one host in cookies and paths: 1-64 of a-z, 0-9,
	// "-" and "_".
	AuthID             string
	MaxSession         time.Duration
	IdleSession        time.Duration // 0 = none
	AllowCORSPreflight bool          // OPTIONS requests of CORS pass without a login
	// that are sent to the upstream: names, or beginnings before a final "*"; nil = all
	UpstreamGroups []string
	Digest         string // the same for equal configs; not for people, who could guess at secrets with it

	// Of oauth and openid-connect.
	Provider       string // oauth's: github, gitlab, google, microsoft
	IssuerURL      string // openid-connect's issuer; the URL of an oauth provider that is not at its usual one
	ClientID       string
	ClientSecret   string
	Scopes         []string
	AuthzURLParams map[string]string
	// RequireAuthTime requires the provider's auth_time for a login after a revocation. nil = if
	// the provider was asked for it.
	RequireAuthTime *bool

	// Of saml. One of the first two is set.
	IdPMetadata       string //nolint:revive // SAML's own spelling
	IdPMetadataURL    string //nolint:revive // as above
	ForceAuthn        bool
	AllowIdPInitiated bool //nolint:revive // as above
	AuthorizedGroups  []string
	NameIDFormat      string // a URN
}

// ForwardsGroup reports whether the group is sent to the upstream.
func (l *LoginConfig) ForwardsGroup(group string) bool {
	return l.UpstreamGroups == nil || slices.ContainsFunc(l.UpstreamGroups, func(of string) bool {
		prefix, many := strings.CutSuffix(of, "*")
		return of == group || many && strings.HasPrefix(group, prefix)
	})
}

// LoginRequest is a request at a login action.
type LoginRequest struct {
	Config   *LoginConfig
	Endpoint *account.Endpoint
	Conn     *Conn
	// Page answers with a page of the edge's.
	Page func(w http.ResponseWriter, r *http.Request, status int, code account.Code, msg string)
}

// LoginResult is what rules after a login action, and upstreams, may know of the person.
type LoginResult struct {
	Identity account.LoginIdentity
	Provider account.IdentityProvider
}

// LoginHandler implements login actions. It answers a request itself (a redirect, a page, a
// reserved path), or calls next once, with a copy of the request whose context ends with the
// session, without the action's cookies, and with a writer that drops everything after that end.
type LoginHandler interface {
	ServeLogin(w http.ResponseWriter, r *http.Request, l LoginRequest,
		next func(w http.ResponseWriter, r *http.Request, found LoginResult))
}

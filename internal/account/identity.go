// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"net/netip"
	"strings"
	"time"
)

// User is a person who logged in through a login action of a traffic policy: an identity, or
// application user. Names and addresses are those of the last login.
// Times are UTC. The JSON is that of /app/users.
type User struct {
	ID             string           `json:"id"`
	URI            string           `json:"uri"`
	Provider       IdentityProvider `json:"identity_provider"`
	ProviderUserID string           `json:"provider_user_id"`
	Username       string           `json:"username"`
	Email          string           `json:"email"`
	Name           string           `json:"name"`
	CreatedAt      time.Time        `json:"created_at"`
	LastActive     time.Time        `json:"last_active"` // exact to a minute
	LastLogin      time.Time        `json:"last_login"`

	Sessions int `json:"-"` // Sessions counts the live ones.
}

// AppSession is one login of a user at one endpoint with one browser: an application session. The
// JSON is that of /app/sessions. Its id is not the browser's secret.
type AppSession struct {
	ID         string    `json:"id"`
	URI        string    `json:"uri"`
	PublicURL  string    `json:"public_url"`
	Device     Device    `json:"browser_session"`
	User       Ref       `json:"application_user"`
	CreatedAt  time.Time `json:"created_at"`
	LastActive time.Time `json:"last_active"` // exact to a minute
	ExpiresAt  time.Time `json:"expires_at"`  // the earlier of the end of its life and of its idle time
	// LastDevice is the browser that used the session last: Device until another one did.
	LastDevice Device `json:"last_browser_session"`
	// DeviceChangedAt is when the session was used last from another device, system, browser or
	// country than just before; nil = never.
	DeviceChangedAt *time.Time `json:"browser_changed_at"`
	Endpoint        *Ref       `json:"endpoint"`
	Edge            *Ref       `json:"edge"`  // always null here
	Route           *Ref       `json:"route"` // always null here
}

// AccessedEndpoint is an endpoint that a user has been to. It outlives the sessions.
type AccessedEndpoint struct {
	URL      string    `json:"url"`
	Endpoint *Ref      `json:"endpoint"` // the last that had the URL; it may be gone
	First    time.Time `json:"first_accessed"`
	Last     time.Time `json:"last_accessed"`
}

// UserFilter narrows a list of users; empty fields match everything.
type UserFilter struct {
	// Query holds words. Each is a part of user name, e-mail, name, the provider's name, its id of
	// the user, or id, whatever their case and accents.
	Query    string
	Provider string // Provider is the provider's name, or a part of it, likewise.
	UserID   string
	// AccessFilter selects users by a live session; with Endpoint alone, by every endpoint that
	// they have accessed.
	AccessFilter

	ByActivity bool // ByActivity lists the most recently active first, and not the newest.
	// ActiveBefore is, with ByActivity, the LastActive of the user Page.BeforeID, after which the
	// page begins.
	ActiveBefore time.Time
}

// AppSessionFilter narrows a list of sessions; empty fields match everything.
type AppSessionFilter struct {
	Query    string // words as in UserFilter.Query; each is of the user, or a part of the URL or the IP address
	Provider string
	UserID   string
	AccessFilter
}

// MaxSearch bounds what is searched for, in bytes.
const MaxSearch = 255

// Validate checks the texts of the filter and lists every broken rule as CodeInvalid, under the
// names of the API's parameters.
func (f UserFilter) Validate() error {
	var r rules
	r.text("q", f.Query, MaxSearch)
	r.text("provider", f.Provider, MaxSearch)
	f.AccessFilter.validate(&r)
	return r.err()
}

// Identities reads users and their sessions. An id of another account is CodeNotFound.
type Identities interface {
	User(ctx context.Context, accountID, id string) (*User, error)
	Users(ctx context.Context, accountID string, f UserFilter, p Page) (users []User, more bool, err error)
	AppSession(ctx context.Context, accountID, id string) (*AppSession, error)
	AppSessions(ctx context.Context, accountID string, f AppSessionFilter, p Page) (sessions []AppSession, more bool,
		err error)
	AccessedEndpoints(ctx context.Context, accountID, userID string) ([]AccessedEndpoint, error)
	// IdentityProviders returns the providers that the account's users logged in with, by name.
	IdentityProviders(ctx context.Context, accountID string) ([]IdentityProvider, error)
	// AccessChoices returns what an AccessFilter can select now.
	AccessChoices(ctx context.Context, accountID string) (*AccessChoices, error)
}

// RevokeSelector selects the sessions that end. Exactly one of UserID, SessionsOf, SessionID and
// Issuer is set.
type RevokeSelector struct {
	UserID     string // UserID is a user who is deleted, too, with all data about them.
	SessionsOf string // SessionsOf is a user who stays: all of their sessions end.
	SessionID  string

	// Fields of a back-channel logout: the sessions of the issuer's client with its sid, or its
	// sub.
	Issuer, Client, ProviderSession, Subject string
	// ReplayKey identifies the logout token; it is remembered until ReplayUntil. CodeLoginFailed
	// when it was used before or is too old. It counts as used only once the sessions have ended,
	// so that a request that is repeated after a failure succeeds. "" = no replay check.
	ReplayKey   string
	ReplayUntil time.Time
}

// Reasons for which sessions are revoked.
const (
	RevokedByAdmin       = "revoked"             // through the API or the dashboard
	RevokedByLogout      = "logout"              // by the user
	RevokedByBackChannel = "back-channel logout" // by the identity provider
	RevokedByRetention   = "retention"           // inactive for longer than users are kept
	RevokedByNewLogin    = "new login"           // in the same browser at the same endpoint
	// RevokedByLimit is the reason at a login of one session more than a user may have: the one
	// that was used least recently ends.
	RevokedByLimit = "session limit"
)

// Revocation is the result of Revoke.
type Revocation struct {
	UserIDs    []string
	SessionIDs []string
	At         time.Time // At is when it was committed.
	Streams    int       // Streams counts those that the edge cut.
}

// Revoker ends sessions. When Revoke of the service returns, nothing of the sessions is served any
// more; it completes the revocation even if its context ends. That of the store only ends what is
// stored: user or sessions, with tombstones, an audit record and its details, in one transaction.
// CodeNotFound for the id of another account. A selector by issuer that matches nothing is no
// error.
type Revoker interface {
	Revoke(ctx context.Context, by Caller, sel RevokeSelector, reason string) (*Revocation, error)
}

// AccessFilter selects sessions by endpoint and by the client's address. Empty fields match
// everything.
type AccessFilter struct {
	Endpoint string // a part of the URL, in any case, or the endpoint's id
	IP       string // an IP address, or the beginning of one
	Country  string // ISO 3166-1 alpha-2 code, in any case
}

// Address returns the IP address that the filter names in full, in the form in which sessions have
// it.
func (f AccessFilter) Address() (address string, whole bool) {
	ip, err := netip.ParseAddr(f.IP)
	if err != nil {
		return strings.ToLower(f.IP), false
	}
	return ip.Unmap().WithZone("").String(), true
}

// maxAddress is the length of the longest IP address, in bytes.
const maxAddress = 45

func (f AccessFilter) validate(r *rules) {
	r.text("endpoint", f.Endpoint, MaxSearch)
	if len(f.IP) > maxAddress || strings.Trim(strings.ToLower(f.IP), "0123456789abcdef:.") != "" {
		r.add("ip", f.IP, "must be an IP address, or what addresses begin with")
	}
	if f.Country != "" && !isCountryCode(f.Country) {
		r.add("country", f.Country, "must be a country's code of two letters, such as DE")
	}
}

func isCountryCode(s string) bool {
	return len(s) == 2 && strings.Trim(strings.ToUpper(s), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// MaxAccessChoices bounds the URLs of AccessChoices.
const MaxAccessChoices = 200

// AccessChoices are the values of an AccessFilter that select something, sorted.
type AccessChoices struct {
	Endpoints []string // URLs that users have accessed, the first MaxAccessChoices
	Countries []string // codes of the countries of live sessions
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// LoginIdentity holds the claims of an identity provider, for rules and upstream headers. It
// is kept with the session, encrypted.
type LoginIdentity struct {
	ID             string              `json:"id"` // User.ID
	ProviderUserID string              `json:"provider_user_id"`
	Username       string              `json:"username,omitempty"`
	Email          string              `json:"email,omitempty"` // "" when it is not verified
	Name           string              `json:"name,omitempty"`
	Groups         []string            `json:"groups,omitempty"`
	Attributes     map[string][]string `json:"attributes,omitempty"`
}

// NewLogin is a login that an identity provider has confirmed.
type NewLogin struct {
	// what the person is, for ever: kind, issuer and subject, joined by NUL; never an e-mail
	// address. Only a keyed hash is stored
	Key       string
	Provider  IdentityProvider
	Identity  LoginIdentity // ID is ignored
	Issuer    string        // the provider's, for back-channel logout; "" = none
	Client    string        // the provider's client; its logouts alone end the session
	Subject   string
	SessionID string // the provider's sid; "" = none

	StartedAt   time.Time // when the browser was sent to the provider, by Logins.Time
	AuthTime    time.Time // when the provider asked the person; zero = it does not say
	ForceReauth bool      // the provider was told to ask, and AuthTime was checked where it tells

	EndpointID, URL string
	// what the session is good for: a digest of account, URL, auth_id and the issuer, client or
	// entity
	Scope       string
	TokenHash   []byte // SHA-256 of the browser's secret
	Replaces    []byte // TokenHash of the browser's session until now, which ends if Scope is the same; nil = none
	Device      Device
	MaxDuration time.Duration // longest life of the session
	Idle        time.Duration // 0 = none
	NotAfter    time.Time     // the session ends then at the latest; zero = none
}

// LiveSession is the stored session of a request.
type LiveSession struct {
	ID, UserID, AccountID string
	Scope                 string
	Identity              LoginIdentity
	Provider              IdentityProvider
	ExpiresAt             time.Time
	LastUse               LastUse
	ReplacedSessionID     string // id of the session that a login has ended, of Login only; "" = none
}

// Logins is the store of login actions. Sessions end by the store's clock.
type Logins interface {
	// Time returns the time of the store's clock, which revocations are recorded with. A login that
	// begins with it is compared with them rightly although machines' clocks differ. The error is
	// CodeUnavailable.
	Time(ctx context.Context) (time.Time, error)
	// Login stores a session, and its user, whom it creates at the first login. CodeLoginAgain when
	// sessions of the person were revoked, and the login began before that, or nothing says that
	// the provider asked the person after it: neither ForceReauth nor AuthTime, which counts a
	// minute less because of clocks. The provider has to be asked again, with ForceReauth.
	// CodeLimit when the account has as many users as it may.
	Login(ctx context.Context, accountID string, l NewLogin) (*LiveSession, error)
	// LiveSession returns the session with the secret's hash, and records its use.
	// CodeNotFound when there is none, or it is over; CodeUnavailable, and never a session, while
	// the store does not answer. It reads the store every time.
	LiveSession(ctx context.Context, accountID string, tokenHash []byte) (*LiveSession, error)
	// RecordDevice records that the session, as LiveSession returned it, was used from the device. It is
	// written later, at most once a minute; a change, see LastUse.Compare, with an audit event.
	RecordDevice(s *LiveSession, d Device)
	// RevokedSince returns when sessions of the person were revoked last; zero: not within the
	// longest life of a session.
	RevokedSince(ctx context.Context, accountID, key string) (time.Time, error)
	// UseOnce reports whether this is the first call with the key, and remembers the key until the
	// given time. It prevents the replay of assertions and logout tokens.
	UseOnce(ctx context.Context, accountID, key string, until time.Time) (bool, error)
	// SaveTicket stores data, encrypted, under the hash of a secret; RedeemTicket gives it
	// out once. CodeNotFound for a ticket that is unknown, redeemed or too old.
	SaveTicket(ctx context.Context, accountID string, hash, data []byte, until time.Time) error
	RedeemTicket(ctx context.Context, accountID string, hash []byte) ([]byte, error)
	// LiveSessionIDs returns which of the sessions are live, for the sweep over served requests.
	LiveSessionIDs(ctx context.Context, ids []string) (map[string]bool, error)
}

// Limits of users and their sessions.
const (
	DefaultSessionDuration = 14 * 24 * time.Hour
	MaxSessionDuration     = 30 * 24 * time.Hour // and as long tombstones stay
	DefaultMaxUsers        = 100_000             // per account; a login of one more is CodeLimit
	// per user; at a login of one more the one that was used least recently ends
	MaxUserSessions = 100
	MaxIdentity     = 64 << 10 // bytes of a LoginIdentity as JSON; a login with more is CodeLoginFailed
)

// DashboardSession is a sign-in to the dashboard with an API key. It ends with the key.
type DashboardSession struct {
	Key       APIKey
	ExpiresAt time.Time
}

// DashboardSessions stores sign-ins to the dashboard.
type DashboardSessions interface {
	// SignIn stores a session of the key for DashboardLife.
	SignIn(ctx context.Context, key *APIKey, tokenHash []byte) (*DashboardSession, error)
	// DashboardSession returns the session with the hash and its key as it is now.
	// CodeUnknownCredential when there is none, it is over, or its key is deleted or expired.
	DashboardSession(ctx context.Context, tokenHash []byte) (*DashboardSession, error)
	SignOut(ctx context.Context, tokenHash []byte) error
}

// DashboardLife is how long a sign-in to the dashboard lasts.
const DashboardLife = 12 * time.Hour

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"time"
)

// IdentityProvider is the provider that authenticated a user.
type IdentityProvider struct {
	Name string `json:"name"` // Name is "Google", "GitHub", the host of an issuer, or a SAML entity id.
	URL  string `json:"url"`
}

// LoginIdentity holds the claims of an identity provider, for rules and upstream headers. It
// is kept with the session, encrypted.
type LoginIdentity struct {
	ID             string              `json:"id"` // ID is that of the User.
	ProviderUserID string              `json:"provider_user_id"`
	Username       string              `json:"username,omitempty"`
	Email          string              `json:"email,omitempty"` // Email is "" unless the provider has verified it.
	Name           string              `json:"name,omitempty"`
	Groups         []string            `json:"groups,omitempty"`
	Attributes     map[string][]string `json:"attributes,omitempty"`
}

// Authentication holds the statements of an identity provider about a person who logs in.
type Authentication struct {
	// Key identifies the person for ever: kind, issuer and subject, joined by NUL; never an e-mail
	// address. The store has a keyed hash of it.
	Key      string           `json:"key"`
	Provider IdentityProvider `json:"provider"`
	Identity LoginIdentity    `json:"identity"` // Identity has no ID yet.
	// Issuer and Client are the provider's, whose back-channel logouts end the session. Without an
	// Issuer none does.
	Issuer    string    `json:"issuer,omitempty"`
	Client    string    `json:"client,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	SessionID string    `json:"session_id,omitempty"` // SessionID is the provider's sid; "" = none.
	AuthTime  time.Time `json:"auth_time,omitzero"`   // AuthTime is when the provider asked the person; zero = unknown.
	NotAfter  time.Time `json:"not_after,omitzero"`   // NotAfter is the latest end of the session; zero = none.
}

// NewLogin is a login that an identity provider has confirmed.
type NewLogin struct {
	Authentication
	StartedAt   time.Time // StartedAt is when the browser was sent to the provider, by Logins.Time.
	ForceReauth bool      // ForceReauth is set if the provider was told to ask; an AuthTime was checked.

	EndpointID, URL string
	// Scope is where the session is valid: a digest of account, URL, auth_id and the issuer, client
	// or entity.
	Scope     string
	TokenHash []byte // TokenHash is the SHA-256 hash of the browser's secret.
	// Replaces is the TokenHash of the browser's session until now, which ends if Scope is the
	// same; nil = none.
	Replaces    []byte
	Device      Device
	MaxDuration time.Duration // MaxDuration is the longest life of the session.
	Idle        time.Duration // Idle ends a session that is not used for as long; 0 = none does.
}

// LiveSession is the stored session of a request.
type LiveSession struct {
	ID, AccountID     string
	Scope             string
	Identity          LoginIdentity
	Provider          IdentityProvider
	ExpiresAt         time.Time
	LastUse           LastUse
	ReplacedSessionID string // ReplacedSessionID is the session that a Login has ended; "" = none.
}

// UserAgent is a parsed User-Agent header.
type UserAgent struct {
	Raw            string `json:"raw"`
	BrowserName    string `json:"browser_name"`
	BrowserVersion string `json:"browser_version"`
	DeviceType     string `json:"device_type"` // DeviceType is Desktop, Mobile, Tablet, Bot or Unknown.
	OSName         string `json:"os_name"`
	OSVersion      string `json:"os_version"`
}

// Location is the estimated location of an address. Members that the database does not have are
// nil.
type Location struct {
	CountryCode *string  `json:"country_code"`
	Latitude    *float64 `json:"latitude"`
	Longitude   *float64 `json:"longitude"`
	RadiusKM    *int     `json:"lat_long_radius_km"`
}

// Network is the autonomous system of an address.
type Network struct {
	ASN          int    `json:"asn"`
	Organization string `json:"organization"`
}

// Device is the browser of a session, with its address and location at the login.
type Device struct {
	UserAgent UserAgent `json:"user_agent"`
	IPAddress string    `json:"ip_address"`
	Location  *Location `json:"location"` // Location is nil if no database has the address.
	Network   *Network  `json:"network"`  // Network is nil likewise.
}

// lastUseInterval is the least time between two writes of a session's last device, and between two
// events of its change.
const lastUseInterval = time.Minute

// LastUse is the browser that used a session last.
type LastUse struct {
	Device    Device
	WrittenAt time.Time // WrittenAt is when Device was written; zero = at the login.
	ChangedAt time.Time // ChangedAt is when a device or country differed from the one before; zero = never.
}

// Compare compares the device of a request with the last one. due reports whether it has to be
// written; changed, whether it is another kind of device, system or browser, or in another country.
// A browser that was updated, and another address, are no change.
func (l LastUse) Compare(d Device, now time.Time) (due, changed bool) {
	last := l.Device
	unknown := last.IPAddress == "" && last.UserAgent == UserAgent{}
	if !unknown && (last.UserAgent.differs(d.UserAgent) || last.Location.differs(d.Location)) {
		return now.Sub(l.ChangedAt) >= lastUseInterval, true
	}
	same := last.IPAddress == d.IPAddress && last.UserAgent == d.UserAgent
	return !same && now.Sub(l.WrittenAt) >= lastUseInterval, false
}

func (a UserAgent) differs(b UserAgent) bool {
	if a.BrowserName == "" && a.OSName == "" && b.BrowserName == "" && b.OSName == "" {
		return a.Raw != b.Raw
	}
	return a.DeviceType != b.DeviceType || a.OSName != b.OSName || a.BrowserName != b.BrowserName
}

// Summary names browser and system, or returns the whole header if both are unknown.
func (a UserAgent) Summary() string {
	switch {
	case a.BrowserName == "" && a.OSName == "":
		return Shorten(a.Raw)
	case a.BrowserName == "":
		return a.OSName
	case a.OSName == "":
		return a.BrowserName
	}
	return a.BrowserName + " on " + a.OSName
}

// Country returns the code of the country, "" where it is not known.
func (l *Location) Country() string {
	if l == nil || l.CountryCode == nil {
		return ""
	}
	return *l.CountryCode
}

// differs reports whether both countries are known and not the same.
func (l *Location) differs(other *Location) bool {
	a, b := l.Country(), other.Country()
	return a != "" && b != "" && a != b
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
	// RecordDevice records that the session, as LiveSession returned it, was used from the device.
	// It is written later, at most once a minute; a change, see LastUse.Compare, with an audit
	// event.
	RecordDevice(s *LiveSession, d Device)
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
	// MaxUserSessions bounds the sessions of a user. A login of one more ends the one that was used
	// least recently.
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

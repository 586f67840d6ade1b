// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Store is what both the account API and the dashboard read and write.
type Store interface {
	account.Endpoints
	account.EventLog
	account.AuditLog
	account.Operators
	account.Backends
	account.TunnelSessions
	account.LabelledTunnels
	account.Identities
	account.APIKeys
	account.Authtokens
	account.Clusters
	account.Authenticator
}

// Redactor marks the secrets of policies. *seal.Key implements it.
type Redactor interface {
	// RedactionMark returns the text that is shown in place of a secret of a policy: "redacted:"
	// and 8 hexadecimal digits, the same for the same account and secret.
	RedactionMark(accountID, secret string) string
}

// Backends knows how the edge uses backends.
type Backends interface {
	// ActiveChild returns the child of a failover that serves now, "" when it is not known.
	ActiveChild(accountID, backendID string) string
	// CheckStaticAddress returns CodeInvalid for the address of a static backend to which the server
	// would not connect.
	CheckStaticAddress(address string) error
}

// Meter counts. Implementations are safe for concurrent use and do not block.
type Meter interface {
	// CountAnswer counts a request that has ended, with its status and the code of its error.
	CountAnswer(status int, code account.Code)
	// ObserveWatch records the time from the creation of an endpoint until a watch that waited for
	// it was told.
	ObserveWatch(delay time.Duration)
}

// SelectorCompiler compiles an operator's selectors to a function that reports whether an endpoint
// is the operator's; without selectors every endpoint is. CodeInvalid for a selector that does not
// compile.
type SelectorCompiler func(selectors []string) (func(*account.Endpoint) bool, error)

// SharedOptions are the options that the account API and the dashboard have in common. Fields are
// required unless their comment names a default.
type SharedOptions struct {
	SessionEnder account.SessionEnder
	Revoker      account.Revoker // ends sessions and their open connections

	Redactor       Redactor
	Backends       Backends
	MatchSelectors SelectorCompiler
	// Draining is set when the server is about to stop. Then writes are refused with
	// CodeUnavailable, but for the API's revocations; nil = never.
	Draining *atomic.Bool
	Meter    Meter // nil = nothing is counted

	BaseURL         string              // https://HOST[:PORT] of the API
	OnAuthenticated func(*http.Request) // called for each authenticated request; default does nothing
	Logger          *slog.Logger        // default slog.Default
	Clock           func() time.Time    // default time.Now
}

// SetDefaults sets the options that have a default and removes the slash at the end of BaseURL.
func (o *SharedOptions) SetDefaults() {
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Draining = cmp.Or(o.Draining, new(atomic.Bool))
	if o.OnAuthenticated == nil {
		o.OnAuthenticated = func(*http.Request) {}
	}
}

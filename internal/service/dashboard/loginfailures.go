// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// maxLoginFailures is how many the page of identities shows.
const maxLoginFailures = 50

// failedLogins is the part of the page of identities about logins that failed.
type failedLogins struct {
	Kept     bool // the server keeps them
	Rows     []failedLogin
	Since    time.Time // when the recording began; zero = more than a day ago
	Missing  []string  // replicas that did not answer
	MayOlder bool      // older ones may be left out
}

// failedLogin is a login that failed, as the page shows it.
type failedLogin struct{ traffic.LoginFailure }

// Why returns the reason for the owner, else what the person was shown.
func (f failedLogin) Why() string { return cmp.Or(f.Reason, f.Shown, string(f.Code)) }

// Where describes the step that failed.
func (f failedLogin) Where() string {
	switch f.Step {
	case "login":
		return "before the provider was asked"
	case "callback", "acs":
		return "at the provider’s answer"
	case "finish":
		return "after the provider’s answer"
	case "session":
		return "at a request with a session"
	}
	return f.Step
}

func (s *server) failedLogins(c *call) (f failedLogins) {
	if s.opt.Traffic == nil {
		return f
	}
	rows, coverage := s.opt.Traffic.LoginFailures(c.Context(), c.AccountID(), maxLoginFailures)
	f = failedLogins{Kept: !coverage.Since.IsZero(), Missing: coverage.Missing,
		MayOlder: len(rows) >= maxLoginFailures}
	if s.opt.Clock().Sub(coverage.Since) < 24*time.Hour {
		f.Since = coverage.Since
	}
	for _, row := range rows[:min(len(rows), maxLoginFailures)] {
		if !account.ValidID(account.PrefixEndpoint, row.EndpointID) {
			row.EndpointID = "" // no link leads there
		}
		f.Rows = append(f.Rows, failedLogin{row})
	}
	return f
}

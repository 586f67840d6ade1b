// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"cmp"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// stepSession is the step of a request that is not to a reserved path.
const stepSession = "session"

// FailureRecorder records failed logins for the owners of endpoints. It does not block.
// *traffic.Recorder implements it.
type FailureRecorder interface {
	LoginFailed(accountID string, f traffic.LoginFailure)
}

// PersonalError is a cause that lists claims of a provider about a person. That is for the server's
// log only.
type PersonalError struct {
	Public string                // Public is the cause without personal details.
	Person account.LoginIdentity // Person is the one that the provider confirmed.
	Cause  error
}

// Error returns the cause's text.
func (e *PersonalError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *PersonalError) Unwrap() error { return e.Cause }

// reportFailure passes a failed login to Options.Failures. Its reason is the cause, with the
// provider's own words where it gave any: other servers, and people in their own browsers, may have
// chosen parts of it. It lists no groups of people.
func (q *request) reportFailure(code account.Code, shown string, cause error) {
	switch q.step {
	case PathLogout, PathMetadata:
		return
	}
	if q.failures == nil || q.r.Context().Err() != nil {
		return
	}
	reason := logText(cause)
	if personal, ok := errors.AsType[*PersonalError](cause); ok {
		reason, q.person = personal.Public, personal.Person
	}
	q.failures.LoginFailed(q.Endpoint.AccountID, traffic.LoginFailure{At: time.Now(), EndpointID: q.Endpoint.ID,
		EndpointURL: q.Endpoint.URL, AuthID: q.Config.AuthID, Provider: providerName(q.Config),
		Client: q.Conn.ClientIP, Person: personName(q.person), Step: cmp.Or(q.step, stepSession), Code: code,
		Shown: shown, Reason: reason})
}

// personName returns what the provider calls a person, with the id that distinguishes namesakes.
func personName(id account.LoginIdentity) string {
	name := cmp.Or(id.Email, id.Username, id.Name)
	if name == "" || id.ProviderUserID == "" || name == id.ProviderUserID {
		return cmp.Or(name, id.ProviderUserID)
	}
	return name + " (" + id.ProviderUserID + ")"
}

// providerName returns the name of the config's provider, or its host.
func providerName(c *trafficpolicy.LoginConfig) string {
	for _, raw := range []string{c.IssuerURL, c.IdPMetadataURL} {
		if u, err := url.Parse(raw); err == nil && u.Host != "" && c.Provider == "" {
			return u.Host
		}
	}
	return cmp.Or(c.Provider, string(c.Kind))
}

// RefusedError makes the error of a login that is not confirmed. The message is for the person; the
// cause, which may be nil, is logged.
func RefusedError(sentence string, cause error) error {
	return &account.Error{Code: account.CodeLoginFailed, Msg: sentence, Cause: cause}
}

// ProviderError makes the error of a provider that fails. The cause is logged.
func ProviderError(cause error) error {
	return &account.Error{Code: account.CodeProviderFailed,
		Msg: "The identity provider of this endpoint does not answer as it should. Try again in a moment; the owner " +
			"of the endpoint finds the cause in the server's log.", Cause: cause}
}

// userMessage returns an error's message for the person; "" = none.
func userMessage(err error) string {
	if e, ok := errors.AsType[*account.Error](err); ok {
		return e.Msg
	}
	return ""
}

// maxLoggedCause is the limit of a logged cause in bytes.
const maxLoggedCause = 500

// logText returns the text of an error for the log and the endpoint's owner, without tokens and
// words of Go: its cause alone if the message is for the person.
func logText(err error) string {
	if e, ok := errors.AsType[*account.Error](err); ok && e.Cause != nil &&
		(e.Code == account.CodeLoginFailed || e.Code == account.CodeProviderFailed) {
		err = e.Cause
	}
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), 4*maxLoggedCause)], "?")
	text = redact.Tokens(printable.DecodeError(text))
	if len(text) > maxLoggedCause {
		text = strings.ToValidUTF8(text[:maxLoggedCause], "") + "…"
	}
	return text
}

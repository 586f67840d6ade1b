// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

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
	var e *account.Error
	if errors.As(err, &e) {
		return e.Msg
	}
	return ""
}

// maxLoggedCause is the limit of a logged cause in bytes.
const maxLoggedCause = 500

// logText returns the text of an error for the log and the endpoint's owner, without tokens and words
// of Go: its cause alone if the message is for the person.
func logText(err error) string {
	var e *account.Error
	if errors.As(err, &e) && e.Cause != nil &&
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

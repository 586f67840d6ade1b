// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// tunnelCodes maps the codes of internal/account to the protocol's. Codes that are missing become
// INTERNAL.
var tunnelCodes = map[account.Code]tunnel.Code{
	account.CodeNoCredential:      tunnel.CodeBadToken,
	account.CodeUnknownCredential: tunnel.CodeBadToken,
	account.CodeWrongKind:         tunnel.CodeBadToken,
	account.CodeExpired:           tunnel.CodeBadToken,
	account.CodeUnknownKey:        tunnel.CodeUnavailable, // until the cluster's manager has handed the key over
	account.CodeScope:             tunnel.CodeForbidden,
	account.CodeInvalid:           tunnel.CodeInvalid,
	account.CodeMalformed:         tunnel.CodeInvalid,
	account.CodeTooLarge:          tunnel.CodeInvalid,
	account.CodeURLTaken:          tunnel.CodeURLTaken,
	account.CodeInUse:             tunnel.CodeURLTaken,
	account.CodeLimit:             tunnel.CodeLimit,
	account.CodeTooMany:           tunnel.CodeRateLimited,
	account.CodeNotFound:          tunnel.CodeUnavailable, // the session's row is gone: a new session helps
	account.CodeUnavailable:       tunnel.CodeUnavailable,
}

// refusal returns the error that the peer gets. Causes are logged and not sent.
func refusal(log *slog.Logger, err error) *tunnel.Error {
	if te, ok := errors.AsType[*tunnel.Error](err); ok {
		return te
	}
	if ae, ok := errors.AsType[*account.Error](err); ok {
		if code, ok := tunnelCodes[ae.Code]; ok {
			if ae.Cause != nil {
				log.Warn("a request of a session was refused", "code", ae.Code, "err", err)
			}
			return &tunnel.Error{Code: code, Msg: truncateMessage(ae.Msg), Detail: string(ae.Code),
				Errors: fieldErrors(ae.Fields)}
		}
	}
	log.Error("request of a tunnel session failed", "err", err)
	return &tunnel.Error{Code: tunnel.CodeInternal, Msg: "the server has an internal error; its log has the cause",
		Detail: string(account.CodeInternal)}
}

// Bounds of a refusal in bytes of JSON, so that it fits a control message: of its message, and of
// its field errors.
const (
	maxMessageSize     = 24 << 10
	maxFieldErrorsSize = 24 << 10
)

func truncateMessage(msg string) string {
	if encodedSize(msg) <= maxMessageSize {
		return msg
	}
	most := len(msg)
	for encodedSize(msg[:most]) > maxMessageSize {
		most /= 2
	}
	return strings.ToValidUTF8(msg[:most], "") + "…"
}

// encodedSize returns the bytes of v as JSON.
func encodedSize(v any) int {
	b, _ := json.Marshal(v) // strings and numbers always encode
	return len(b)
}

// fieldErrors returns the broken rules that fit, followed by the number of the others.
func fieldErrors(fields []account.FieldError) []tunnel.FieldError {
	var list []tunnel.FieldError
	bytes := 0
	for i, f := range fields {
		if bytes += encodedSize(f); bytes > maxFieldErrorsSize {
			return append(list, tunnel.FieldError{Field: f.Field, Rule: fmt.Sprintf("%d more mistakes", len(fields)-i)})
		}
		list = append(list, tunnel.FieldError(f))
	}
	return list
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// tunnelCodes maps the domain's codes to the protocol's. What is missing is INTERNAL.
var tunnelCodes = map[account.Code]tunnel.Code{
	account.CodeNoCredential:      tunnel.CodeBadToken,
	account.CodeUnknownCredential: tunnel.CodeBadToken,
	account.CodeWrongKind:         tunnel.CodeBadToken,
	account.CodeExpired:           tunnel.CodeBadToken,
	account.CodeScope:             tunnel.CodeForbidden,
	account.CodeInvalid:           tunnel.CodeInvalid,
	account.CodeMalformed:         tunnel.CodeInvalid,
	account.CodeTooLarge:          tunnel.CodeInvalid,
	account.CodeURLTaken:          tunnel.CodeURLTaken,
	account.CodeInUse:             tunnel.CodeURLTaken,
	account.CodeLimit:             tunnel.CodeLimit,
	account.CodeTooMany:           tunnel.CodeRateLimited,
	account.CodeNotFound:          tunnel.CodeUnavailable, // the session's row is gone: a new session is what helps
	account.CodeUnavailable:       tunnel.CodeUnavailable,
}

// refusal turns any error into what the peer may see. Causes stay here: an internal fault is
// logged, as nobody above does it.
func (s *Server) refusal(err error) *tunnel.Error {
	var te *tunnel.Error
	if errors.As(err, &te) {
		return te
	}
	var ae *account.Error
	if errors.As(err, &ae) {
		if code, ok := tunnelCodes[ae.Code]; ok {
			if ae.Cause != nil {
				s.log.Warn("a request of a session was refused", "code", ae.Code, "err", err)
			}
			return &tunnel.Error{Code: code, Msg: cut(ae.Msg), Detail: string(ae.Code), Errors: fieldErrors(ae.Fields)}
		}
	}
	s.log.Error("a request of a session came to an internal error", "err", err)
	return &tunnel.Error{Code: tunnel.CodeInternal, Msg: "the server came to an internal error; its log says more",
		Detail: string(account.CodeInternal)}
}

// Bounds of a refusal, so that it fits a control message: bytes of its sentence, and of its list,
// as JSON.
const (
	maxSentence = 24 << 10
	maxList     = 24 << 10
)

func cut(msg string) string {
	if encodedSize(msg) <= maxSentence {
		return msg
	}
	most := len(msg)
	for encodedSize(msg[:most]) > maxSentence {
		most /= 2
	}
	return strings.ToValidUTF8(msg[:most], "") + "…"
}

// encodedSize returns the bytes of v as JSON.
func encodedSize(v any) int {
	b, _ := json.Marshal(v) // texts and numbers always encode
	return len(b)
}

// fieldErrors returns the broken rules, the last of them with the number of those for which there
// is no room.
func fieldErrors(fields []account.FieldError) []tunnel.FieldError {
	var list []tunnel.FieldError
	bytes := 0
	for i, f := range fields {
		if bytes += encodedSize(f); bytes > maxList {
			return append(list, tunnel.FieldError{Field: f.Field, Rule: fmt.Sprintf("%d more mistakes", len(fields)-i)})
		}
		list = append(list, tunnel.FieldError(f))
	}
	return list
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"errors"

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

// refusal turns any error into what the peer may see. Causes stay here: an internal fault is logged, as nobody above does it.
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
			return &tunnel.Error{Code: code, Msg: ae.Msg, Detail: string(ae.Code)}
		}
	}
	s.log.Error("a request of a session came to an internal error", "err", err)
	return &tunnel.Error{Code: tunnel.CodeInternal, Msg: "the server came to an internal error; its log says more", Detail: string(account.CodeInternal)}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"fmt"
)

// Code is the reason why the peer refused a message or ended a session. Codes travel on the wire:
// they are stable, and a code that a version does not know is not final.
type Code string

// The codes.
const (
	CodeBadToken       Code = "BAD_TOKEN"       // the authtoken is unknown, expired or of the wrong kind
	CodeTokenRevoked   Code = "TOKEN_REVOKED"   // the authtoken was deleted while the session lived
	CodeVersion        Code = "VERSION"         // no common protocol version
	CodeStop           Code = "STOP"            // the session was stopped by a person: do not reconnect
	CodeURLTaken       Code = "URL_TAKEN"       // another session holds the endpoint's URL
	CodeInvalid        Code = "INVALID"         // a field breaks a rule; the message names field, value and rule
	CodeForbidden      Code = "FORBIDDEN"       // the authtoken has no rule for this
	CodeLimit          Code = "LIMIT"           // a limit of the account
	CodeRateLimited    Code = "RATE_LIMITED"    // too many requests
	CodeDraining       Code = "DRAINING"        // the peer is about to stop; its successor will take over
	CodeUnavailable    Code = "UNAVAILABLE"     // a part of the service is out of reach
	CodeInternal       Code = "INTERNAL"        // a fault of the peer
	CodeUnknownSession Code = "UNKNOWN_SESSION" // a connection wanted to join a session that the server does not have
)

// Final reports whether reconnecting with the same settings is useless.
func (c Code) Final() bool {
	switch c {
	case CodeBadToken, CodeTokenRevoked, CodeVersion, CodeStop, CodeForbidden:
		return true
	default:
		return false
	}
}

// Error is a refusal or the reason of a STOP, as the peer worded it. Msg may be shown to people.
type Error struct {
	Code   Code   `json:"code"`
	Msg    string `json:"msg"`
	Detail string `json:"detail,omitempty"` // a code of docs/fix/errors.md, or ""
	// Errors lists every broken rule of a bind. Older servers have them in Msg only.
	Errors []FieldError `json:"errors,omitempty"`
}

// FieldError is one broken rule. Line and Column, from 1, are the place in a document such as a
// traffic policy; 0 elsewhere.
type FieldError struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Rule   string `json:"rule"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// Error returns the message, followed by the detail where there is one.
func (e *Error) Error() string {
	msg := cmp.Or(e.Msg, string(e.Code))
	if e.Detail != "" {
		return fmt.Sprintf("%s (%s)", msg, e.Detail)
	}
	return msg
}

// RefuseCode is the reason why a stream was refused or aborted: the low byte of the error code in
// the stream's reset.
type RefuseCode uint8

// The refuse codes. They are part of the protocol: never renumber them.
const (
	Aborted                RefuseCode = iota // no reason given: the stream broke
	RefusedUnknownEndpoint                   // the receiver did not bind this endpoint id
	RefusedMismatch                          // the endpoint exists, but not with this host and port
	RefusedOffline                           // no live agent serves the endpoint
	RefusedUpstream                          // the agent could not reach its upstream
	RefusedDraining                          // the receiver is about to stop
	RefusedForbidden                         // the opener may not use this endpoint
	RefusedInternal                          // a fault of the receiver
	RefusedHeader                            // the receiver could not read the stream's header
	RefusedUnresponsive                      // the agent of another replica does not respond
	RefusedSealed                            // the endpoint takes sealed connections only
	RefusedNotSealed                         // the endpoint takes plain connections only
	ResetUntrusted                           // the opener does not trust the agent at the end of a sealed stream
)

var refuseCodeTexts = [...]string{
	Aborted:                "aborted",
	RefusedUnknownEndpoint: "unknown endpoint",
	RefusedMismatch:        "the endpoint has another host or port",
	RefusedOffline:         "the endpoint is offline",
	RefusedUpstream:        "the upstream is unreachable",
	RefusedDraining:        "the receiver is about to stop",
	RefusedForbidden:       "not allowed",
	RefusedInternal:        "internal error",
	RefusedHeader:          "unreadable stream header",
	RefusedUnresponsive:    "the agent does not respond",
	RefusedSealed:          "the endpoint is sealed",
	RefusedNotSealed:       "the endpoint is not sealed",
	ResetUntrusted:         "the agent is not trusted",
}

// String returns the code in a few words.
func (c RefuseCode) String() string {
	if int(c) < len(refuseCodeTexts) {
		return refuseCodeTexts[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// RefusedError means that the receiver refused the stream. It has not used any of the bytes sent,
// so they may be sent elsewhere.
type RefusedError struct{ Code RefuseCode }

// Error returns the reason as a sentence.
func (e *RefusedError) Error() string { return "stream refused: " + e.Code.String() }

// Is matches ErrUnresponsive if the receiver met it on the way to the agent.
func (e *RefusedError) Is(target error) bool {
	return target == ErrUnresponsive && e.Code == RefusedUnresponsive
}

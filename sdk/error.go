// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Code is the code of a failure, as in docs/fix/errors.md. Codes are stable.
type Code string

// The codes that programs usually tell apart.
const (
	CodeUnknownCredential Code = "ERR_FL_1002" // the authtoken or API key is unknown, or was deleted
	CodeWrongKind         Code = "ERR_FL_1003" // an authtoken where an API key belongs, or the reverse
	CodeExpired           Code = "ERR_FL_1004" // the authtoken or API key has expired
	CodeForbidden         Code = "ERR_FL_1020" // the authtoken has no rule for it, or the API key no scope
	CodeInvalid           Code = "ERR_FL_1040" // a field breaks a rule; Error.Fields has all of them
	CodeNotFound          Code = "ERR_FL_1050" // there is no such object
	CodeURLTaken          Code = "ERR_FL_1060" // another endpoint has the URL
	CodeInUse             Code = "ERR_FL_1061" // something refers to the object
	CodeLimit             Code = "ERR_FL_1062" // a limit of the account
	CodeGone              Code = "ERR_FL_1070" // the version of a watch is too old: list again
	CodeTooManyRequests   Code = "ERR_FL_1080"
	CodeUnavailable       Code = "ERR_FL_1090" // the service cannot answer at the moment
	CodeUnreachable       Code = "ERR_FL_2001" // the service did not answer
	CodeBadAnswer         Code = "ERR_FL_2002" // the answer is not the service's
)

// Reason is why an endpoint has ended for good.
type Reason string

// The reasons. ReasonURLTaken, ReasonRefused and ReasonIdentity end Listen and Forward only, not
// endpoints that were online.
const (
	ReasonCredentials Reason = "Credentials" // the authtoken is unknown, revoked, or may not do this
	ReasonURLTaken    Reason = "URLTaken"    // another session holds the URL
	ReasonRefused     Reason = "Refused"     // the service does not take this endpoint
	ReasonStopped     Reason = "Stop"        // a person stopped the session, or the service is of another version
	ReasonIdentity    Reason = "Identity"    // the certificate of the service is not trusted
)

// Error is a refusal: of an endpoint, or of a call of the API.
type Error struct {
	Code    Code         // "" = there is none
	Reason  Reason       // an endpoint's reason; "" for a call of the API
	Message string       // a sentence without a full stop; it may quote the service
	Status  int          // the HTTP status of a call of the API; 0 = there was no answer
	Fields  []FieldError // every broken rule of a request
	// Details are further facts, such as the endpoint_id that has a URL; may be nil.
	Details map[string]string

	cause error
}

// FieldError is one broken rule: the field, its value, and the rule with its remedy. A mistake in a
// traffic policy has its place, from 1, else Line and Column are 0.
type FieldError struct {
	Field, Value, Rule string
	Line, Column       int
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, such as an error of the network or of a certificate; may be nil.
func (e *Error) Unwrap() error { return e.cause }

// publicError returns err as an *Error if it is a refusal, else as it is.
func publicError(err error) error {
	var (
		failure *agent.Failure
		refused *tunnel.Error
		invalid *account.Error
	)
	switch {
	case errors.As(err, &failure):
		e := &Error{Reason: Reason(failure.Reason), Message: failure.Msg, cause: failure.Cause}
		if errors.As(failure.Cause, &refused) {
			e.Code = Code(refused.Detail)
			for _, f := range refused.Errors {
				e.Fields = append(e.Fields, FieldError(f))
			}
		}
		return e
	case errors.As(err, new(*agentconfig.CredentialError)):
		return &Error{Reason: ReasonCredentials, Message: err.Error()}
	case errors.As(err, &invalid):
		e := &Error{Code: Code(invalid.Code), Message: err.Error(), Status: invalid.Status, Details: invalid.Details,
			cause: invalid.Cause}
		for _, f := range invalid.Fields {
			e.Fields = append(e.Fields, FieldError(f))
		}
		return e
	}
	return err
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"errors"
	"fmt"
	"strings"
)

// Code identifies a kind of failure for programs and for docs/fix/errors.md. Codes are stable: they
// are never re-used.
type Code string

// The codes. Codes lists them with their HTTP status; docs/fix/errors.md has a row for each, with
// cause and remedy.
const (
	CodeNoCredential      Code = "ERR_FL_1001"
	CodeUnknownCredential Code = "ERR_FL_1002"
	CodeWrongKind         Code = "ERR_FL_1003"
	CodeExpired           Code = "ERR_FL_1004"
	CodeUnknownKey        Code = "ERR_FL_1005"
	CodeVersionHeader     Code = "ERR_FL_1010"
	CodeScope             Code = "ERR_FL_1020"
	CodeNoRoute           Code = "ERR_FL_1030"
	CodeMethod            Code = "ERR_FL_1031"
	CodeInvalid           Code = "ERR_FL_1040"
	CodeMalformed         Code = "ERR_FL_1041"
	CodeTooLarge          Code = "ERR_FL_1042"
	CodeContentType       Code = "ERR_FL_1043"
	CodeNotFound          Code = "ERR_FL_1050"
	CodeURLTaken          Code = "ERR_FL_1060"
	CodeInUse             Code = "ERR_FL_1061"
	CodeLimit             Code = "ERR_FL_1062"
	CodeChanged           Code = "ERR_FL_1063"
	CodeGone              Code = "ERR_FL_1070"
	CodeTooMany           Code = "ERR_FL_1080"
	CodeUnavailable       Code = "ERR_FL_1090"
	CodeInternal          Code = "ERR_FL_1099"

	CodeUnreachable Code = "ERR_FL_2001"
	CodeBadAnswer   Code = "ERR_FL_2002"

	CodeEndpointOffline     Code = "ERR_FL_3001"
	CodeUpstreamUnreachable Code = "ERR_FL_3002"
	CodeEndpointUnknown     Code = "ERR_FL_3003"
	CodeNoEdge              Code = "ERR_FL_3004"
	CodeUpstreamBroken      Code = "ERR_FL_3005"
	CodeAgentSilent         Code = "ERR_FL_3006"
	CodeAccessDenied        Code = "ERR_FL_3007"
	CodeDenied              Code = "ERR_FL_3010"
	CodeLoginNeeded         Code = "ERR_FL_3011"
	CodeRateLimited         Code = "ERR_FL_3012"
	CodePolicyFailed        Code = "ERR_FL_3013"
	CodeLoginAgain          Code = "ERR_FL_3014"
	CodeLoginFailed         Code = "ERR_FL_3015"
	CodeProviderFailed      Code = "ERR_FL_3016"
	CodePolicyCost          Code = "ERR_FL_3017"
	CodeNoTarget            Code = "ERR_FL_3020"
	CodeNoChild             Code = "ERR_FL_3021"
	CodeNoInternal          Code = "ERR_FL_3022"
	CodeLoop                Code = "ERR_FL_3023"
	CodePolicyBroken        Code = "ERR_FL_3024"
	CodeMisdirected         Code = "ERR_FL_3030"
	CodeBadRequest          Code = "ERR_FL_3031"
	CodeHeaderTooLarge      Code = "ERR_FL_3032"
)

// CodeInfo is one row of the table of codes.
type CodeInfo struct {
	Code   Code
	Status int    // HTTP status
	Title  string // a few words; the error's message has the rest
}

// Codes returns every code with its HTTP status, in order.
func Codes() []CodeInfo {
	return []CodeInfo{
		{CodeNoCredential, 401, "no API key"},
		{CodeUnknownCredential, 401, "unknown API key or authtoken"},
		{CodeWrongKind, 401, "authtoken where an API key belongs, or the reverse"},
		{CodeExpired, 401, "expired API key or authtoken"},
		{CodeUnknownKey, 401, "ServiceAccount token of a key that no cluster has"},
		{CodeVersionHeader, 400, "Service-Version missing, conflicting or unsupported"},
		{CodeScope, 403, "missing scope or rule"},
		{CodeNoRoute, 404, "no such route"},
		{CodeMethod, 405, "method not allowed"},
		{CodeInvalid, 400, "invalid request"},
		{CodeMalformed, 400, "malformed JSON"},
		{CodeTooLarge, 413, "request body too large"},
		{CodeContentType, 415, "unsupported content type"},
		{CodeNotFound, 404, "no such object"},
		{CodeURLTaken, 409, "endpoint URL taken"},
		{CodeInUse, 409, "object in use"},
		{CodeLimit, 409, "account limit reached"},
		{CodeChanged, 409, "object changed meanwhile"},
		{CodeGone, 410, "resource version compacted or foreign"},
		{CodeTooMany, 429, "too many requests"},
		{CodeUnavailable, 503, "store unavailable"},
		{CodeInternal, 500, "internal error"},
		{CodeUnreachable, 503, "service not reachable"},
		{CodeBadAnswer, 502, "answer that is not the service's"},
		{CodeEndpointOffline, 503, "endpoint offline"},
		{CodeUpstreamUnreachable, 502, "upstream unreachable"},
		{CodeEndpointUnknown, 404, "endpoint unknown to the edge"},
		{CodeNoEdge, 503, "forwarder has no connection to the service"},
		{CodeUpstreamBroken, 502, "upstream broke off"},
		{CodeAgentSilent, 504, "agent did not answer"},
		{CodeAccessDenied, 403, "denied by EndpointAccess objects"},
		{CodeDenied, 403, "denied by the traffic policy"},
		{CodeLoginNeeded, 401, "the traffic policy asks for a login"},
		{CodeRateLimited, 429, "too many requests by the traffic policy"},
		{CodePolicyFailed, 500, "traffic policy could not be carried out"},
		{CodeLoginAgain, 401, "login older than a revocation"},
		{CodeLoginFailed, 403, "login refused"},
		{CodeProviderFailed, 502, "identity provider does not answer"},
		{CodePolicyCost, 500, "traffic policy takes too much work"},
		{CodeNoTarget, 503, "cloud endpoint without a target"},
		{CodeNoChild, 503, "no child of the backend is up"},
		{CodeNoInternal, 503, "internal endpoint missing"},
		{CodeLoop, 508, "too many internal endpoints in a row"},
		{CodePolicyBroken, 503, "traffic policy cannot be applied"},
		{CodeMisdirected, 421, "request on another host's connection"},
		{CodeBadRequest, 400, "request that programs read in different ways"},
		{CodeHeaderTooLarge, 431, "request header too large"},
	}
}

// Status returns the code's HTTP status; 500 for a code that is not in the table.
func (c Code) Status() int {
	for _, row := range Codes() {
		if row.Code == c {
			return row.Status
		}
	}
	return 500
}

// FieldError is one broken rule of a request: the field, the value as it was given and the rule
// with its remedy. For a mistake in a document, such as a traffic policy, it has the place, from 1
// and in characters, with which the rule begins, too.
type FieldError struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Rule   string `json:"rule"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// Error is the domain error: a code, a message that is safe to show to the caller, and the cause,
// which is only logged. The store maps driver errors to it, HTTP maps it to a status and back.
type Error struct {
	Code    Code
	Msg     string
	Fields  []FieldError      // for CodeInvalid: every broken rule
	Details map[string]string // more facts for programs, may be nil
	Status  int               // the HTTP status it came with, when it came over HTTP; 0 elsewhere
	Cause   error             // never shown to the caller
}

// HTTPStatus returns the status that the error came with, else the one of its code.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.Status()
}

// Error returns the safe message and, where there is one, the cause.
func (e *Error) Error() string {
	msg := e.Msg
	if msg == "" {
		for i, f := range e.Fields {
			if i > 0 {
				msg += "; "
			}
			msg += f.String()
		}
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", msg, e.Cause)
	}
	return msg
}

// NotShown stands for a value that is not repeated: there is none, or it may be a secret.
const NotShown = "(not shown)"

// String formats the broken rule as a sentence.
func (f FieldError) String() string {
	if f.Value == NotShown {
		return f.Field + ": " + f.Rule
	}
	return fmt.Sprintf("%s %q: %s", f.Field, f.Value, f.Rule)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error without a cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Invalid makes a CodeInvalid error of one broken rule.
func Invalid(field, value, rule string) *Error {
	return InvalidAll([]FieldError{{Field: field, Value: value, Rule: rule}})
}

// InvalidAll makes a CodeInvalid error that lists every broken rule.
func InvalidAll(fields []FieldError) *Error {
	sentences := make([]string, len(fields))
	for i, f := range fields {
		sentences[i] = f.String()
	}
	return &Error{Code: CodeInvalid, Msg: strings.Join(sentences, "; "), Fields: fields}
}

// FieldsOf returns the broken rules of the first *Error in err's chain.
func FieldsOf(err error) []FieldError {
	var e *Error
	if errors.As(err, &e) {
		return e.Fields
	}
	return nil
}

// CodeOf returns the code of the first *Error in err's chain, CodeInternal when there is none, and
// "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

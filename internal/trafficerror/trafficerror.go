// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trafficerror owns the classification of connections and requests that no upstream
// answered: one table of code, refusal, metric label and sentence.
//
// What comes in: the error that the edge met, the refusal that a forwarder got, or the code of an
// error page. Whom it hands over to: the edge and the forwarder, who answer clients and count.
package trafficerror

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// ErrAgentTimeout reports that an agent which responds did not answer an opened stream in time.
var ErrAgentTimeout = errors.New("the agent did not answer in time")

// ErrUnanswered reports that an agent was given a request that may not be sent twice, and does not
// respond any more.
var ErrUnanswered = errors.New("the agent does not respond any more")

// Class is a class of errors.
type Class struct {
	Code    account.Code
	Refusal tunnel.RefuseCode // by which the edge refuses a forwarder's stream
	Reason  string            // label of fairlead_forwarder_errors_total; "" = no forwarder counts it
	Stream  string            // outcome of a stream to an agent, as a metric's label
	message string            // for clients of a forwarder; %s is the endpoint's URL
	byURL   string            // message where the client's stream named no endpoint but a URL; "" = message
	page    string            // for clients of the edge; %s is the endpoint's URL
}

// Message returns the sentence for clients of a forwarder.
func (c Class) Message(url string) string { return fmt.Sprintf(c.message, url) }

// ByURL returns the class with the sentence for clients of `fairlead connect`, which knows URLs only.
func (c Class) ByURL() Class {
	c.message = cmp.Or(c.byURL, c.message)
	return c
}

// Page returns the sentence of the edge's error page for the endpoint.
func (c Class) Page(ep *account.Endpoint) string {
	switch {
	case c.Code == account.CodeEndpointOffline && ep.Type == account.TypeCloud:
		return fmt.Sprintf(
			"What %s forwards to is offline: no agent serves it at the moment. Start its agent and try again.", ep.URL)
	case c.Code == account.CodeEndpointOffline:
		command := "fairlead http PORT --url " + ep.URL
		if len(ep.Bindings) == 1 && ep.Bindings[0] != account.BindingKubernetes {
			command += " --binding " + ep.Bindings[0]
		}
		return fmt.Sprintf("%s is offline: no agent serves it at the moment. Start its agent (%s) and try again.",
			ep.URL, command)
	case c.page == "":
		c = classes[account.CodeUpstreamBroken]
	}
	return fmt.Sprintf(c.page, ep.URL)
}

// AnswerError reports an upstream's answer that HTTP does not allow to pass on.
type AnswerError struct{ problem string }

// AnswerErrorf makes an AnswerError. Its text goes on behind "The answer of the upstream".
func AnswerErrorf(format string, args ...any) *AnswerError {
	return &AnswerError{fmt.Sprintf(format, args...)}
}

func (e *AnswerError) Error() string { return "the answer of the upstream " + e.problem }

// Of classifies an error that a connection or request met in the edge. Errors of no other class are
// CodeUpstreamBroken.
func Of(err error) Class {
	var refused *tunnel.RefusedError
	if answer, ok := errors.AsType[*AnswerError](err); ok {
		c := classes[account.CodeUpstreamBroken]
		c.page = "The answer of the upstream of %s " + strings.ReplaceAll(answer.problem, "%", "%%") +
			". Correct the upstream."
		return c
	}
	code := account.CodeOf(err)
	switch code {
	case account.CodeNoTarget, account.CodeNoChild, account.CodeNoInternal, account.CodeLoop, account.CodePolicyBroken,
		account.CodeEndpointUnknown, account.CodeUnavailable, account.CodeDenied, account.CodeEndpointSealed,
		account.CodeNotSealed:
		return classes[code]
	}
	switch {
	case errors.Is(err, ErrUnanswered):
		c := classes[account.CodeAgentSilent]
		c.page = unansweredPage
		return c
	case errors.Is(err, tunnel.ErrUnresponsive), errors.Is(err, ErrAgentTimeout):
		return classes[account.CodeAgentSilent]
	case errors.As(err, &refused):
		return ofAgentRefusal(refused.Code)
	case code == account.CodeEndpointOffline:
		return classes[code]
	}
	return classes[account.CodeUpstreamBroken]
}

// ofAgentRefusal classifies the refusal of a stream by an agent. One that does not know the
// endpoint has given it back, and one that drains is about to.
func ofAgentRefusal(refusal tunnel.RefuseCode) Class {
	switch refusal {
	case tunnel.RefusedUpstream:
		return classes[account.CodeUpstreamUnreachable]
	case tunnel.RefusedUnknownEndpoint, tunnel.RefusedOffline, tunnel.RefusedDraining:
		return classes[account.CodeEndpointOffline]
	}
	c := classes[account.CodeUpstreamBroken]
	c.Refusal = refusal
	return c
}

// StreamOutcome returns the metric's label for the result of opening a stream to an agent.
func StreamOutcome(err error) string {
	var refused *tunnel.RefusedError
	switch {
	case err == nil:
		return "opened"
	case errors.As(err, &refused):
		return refused.Code.String()
	}
	return Of(err).Stream
}

// OfRefusal classifies the refusal of a forwarder's stream by the edge.
func OfRefusal(refusal tunnel.RefuseCode) Class {
	switch refusal {
	case tunnel.RefusedOffline:
		return classes[account.CodeEndpointOffline]
	case tunnel.RefusedUpstream:
		return classes[account.CodeUpstreamUnreachable]
	case tunnel.RefusedUnknownEndpoint, tunnel.RefusedMismatch:
		return classes[account.CodeEndpointUnknown]
	case tunnel.RefusedForbidden:
		return classes[account.CodeScope]
	case tunnel.RefusedSealed:
		return classes[account.CodeEndpointSealed]
	case tunnel.RefusedNotSealed:
		return classes[account.CodeNotSealed]
	}
	c := classes[account.CodeInternal]
	c.message += ": " + refusal.String() + "."
	return c
}

// AccessDenied returns the class of calls that EndpointAccess objects of the cluster deny, which
// forwarders answer. Its message has no full stop: the reason follows.
func AccessDenied() Class { return classes[account.CodeAccessDenied] }

// Untrusted returns the class of calls that a forwarder ends because it does not trust the agent. Its
// message has no full stop: the reason follows.
func Untrusted() Class { return classes[account.CodeSealUntrusted] }

// OfPage classifies the code of an error page by which the edge answered an http request. ok
// reports whether the endpoint could not be reached.
func OfPage(code account.Code) (c Class, ok bool) {
	switch code {
	case account.CodeEndpointOffline, account.CodeUpstreamUnreachable, account.CodeUpstreamBroken,
		account.CodeAgentSilent:
		return classes[code], true
	}
	return Class{}, false
}

// Status codes of gRPC.
const (
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcInternal          = 13
	grpcUnavailable       = 14
	grpcUnauthenticated   = 16
)

// SetGRPC makes the header of an answer to a gRPC or gRPC-web request the whole answer, with
// status 200: clients take other answers for faults of their own, and a 404 for a method that does
// not exist. It returns false for other requests.
func SetGRPC(answer, request http.Header, status int, code account.Code, msg string) bool {
	kind, _, _ := strings.Cut(request.Get("Content-Type"), ";")
	kind = strings.TrimSpace(kind)
	if rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/grpc"); !ok ||
		rest != "" && rest[0] != '+' && rest != "-web" && !strings.HasPrefix(rest, "-web+") &&
			!strings.HasPrefix(rest, "-web-text") {
		return false
	}
	answer.Set("Content-Type", kind)
	answer.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
	answer.Set("Grpc-Message", encodeGRPCMessage(string(code)+": "+msg))
	answer.Set("Content-Length", "0")
	return true
}

// grpcStatus returns the status code of gRPC for an error's HTTP status.
func grpcStatus(status int) int {
	switch status {
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return grpcPermissionDenied
	case http.StatusTooManyRequests:
		return grpcResourceExhausted
	case http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return grpcUnavailable
	}
	if 400 <= status && status < 500 && status != http.StatusBadRequest { // chosen by a policy's deny
		return grpcPermissionDenied
	}
	return grpcInternal
}

// encodeGRPCMessage encodes all bytes but printable ASCII, and "%".
func encodeGRPCMessage(msg string) string {
	var b strings.Builder
	for i := range len(msg) {
		if c := msg[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

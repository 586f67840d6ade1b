// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

// Reason is a kind of Failure.
type Reason string

// The reasons why an agent gives up. Everything else it retries for ever.
const (
	ReasonCredentials Reason = "Credentials" // the authtoken is unknown, revoked, or may not do this
	ReasonURLTaken    Reason = "URLTaken"    // at start only: another session holds the URL
	ReasonRefused     Reason = "Refused"     // at start only: the server will not bind this endpoint
	ReasonStopped     Reason = "Stop"        // the service stopped the session for good, or speaks another version
	ReasonIdentity    Reason = "Identity"    // at start only: the server is not the one that is trusted
)

// Failure is why Run gave up. Msg is a sentence without a full stop that names what was refused; it
// may quote the server.
type Failure struct {
	Reason   Reason
	Msg      string
	Endpoint *Endpoint // the endpoint that was Refused; nil = it does not concern one endpoint
	Cause    error
}

// Error returns the sentence.
func (f *Failure) Error() string { return f.Msg }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Outages reports why there is no session, once for each cause, and decides which errors end the
// client. It is safe for concurrent use.
type Outages struct {
	opt  *Options
	verb string // what the authtoken has to admit

	mu         sync.Mutex
	everOnline bool   // everOnline is true once an endpoint was bound, or End was told so.
	lastCause  string // lastCause is the last Retrying's cause; "" after End.
}

// NewOutages returns the Outages of a client that does what the verb says: "serve", "call". Of the
// options it uses those of the server, and the Observer.
func NewOutages(o *Options, verb string) *Outages { return &Outages{opt: o, verb: verb} }

// End makes the next outage be reported, whatever its cause; bound reports whether an endpoint was
// bound.
func (o *Outages) End(bound bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.everOnline, o.lastCause = o.everOnline || bound, ""
}

// Report reports why there is no session, once for each cause.
func (o *Outages) Report(err error, retryIn time.Duration) {
	cause, code := causeOf(err, o.opt.Server), codeOf(err)
	o.mu.Lock()
	news, was := cause != o.lastCause, o.everOnline
	o.lastCause = cause
	o.mu.Unlock()
	switch {
	case !news:
	case code == tunnel.CodeDraining:
		o.opt.Observer.Observe(Draining{Server: o.opt.Server})
	default:
		o.opt.Observer.Observe(Retrying{Server: o.opt.Server, Cause: cause, Code: code,
			Untrusted: trust.ProblemOf(err), RetryIn: retryIn, WasOnline: was})
	}
}

// codeOf returns the code of a refusal, "" for other errors.
func codeOf(err error) tunnel.Code {
	if refused, ok := errors.AsType[*tunnel.Error](err); ok {
		return refused.Code
	}
	return ""
}

// FailureOf returns the failure when err ends the agent or, when what is one of several endpoints,
// that endpoint; nil when a retry may help. Until an endpoint was bound for the first time, errors
// that need a decision are final, while a running agent retries.
func (o *Outages) FailureOf(err error, what string) *Failure {
	o.mu.Lock()
	server, atStart := o.opt.Server, !o.everOnline
	o.mu.Unlock()
	fail := func(r Reason, format string, args ...any) *Failure {
		return &Failure{Reason: r, Msg: fmt.Sprintf(format, args...), Cause: err}
	}
	var refused *tunnel.Error
	if !errors.As(err, &refused) {
		problem := trust.ProblemOf(err)
		if atStart && problem != trust.NoProblem && !slices.Contains(o.opt.RetryUntrusted, problem) {
			return fail(ReasonIdentity, "%s cannot be trusted: %s", server, identityText(problem))
		}
		return nil
	}
	switch {
	case refused.Code == tunnel.CodeBadToken:
		return fail(ReasonCredentials, "the server refused the authtoken: %s", refused)
	case refused.Code == tunnel.CodeTokenRevoked:
		return fail(ReasonCredentials, "the authtoken was revoked: %s", refused)
	case refused.Code == tunnel.CodeForbidden:
		return fail(ReasonCredentials, "the authtoken may not %s %s: %s", o.verb, what, refused)
	case refused.Code == tunnel.CodeVersion:
		return fail(ReasonStopped, "cannot work with %s: %s", server, refused)
	case refused.Code.Final():
		return fail(ReasonStopped, "the server ended the session for good: %s", refused)
	case atStart && refused.Code == tunnel.CodeURLTaken:
		return fail(ReasonURLTaken, "%s", refused) // names the URL and its holder
	case atStart && (refused.Code == tunnel.CodeInvalid || refused.Code == tunnel.CodeLimit):
		return fail(ReasonRefused, "the server refused %s: %s", what, refused)
	}
	return nil
}

func identityText(p trust.Problem) string {
	switch p {
	case trust.UnknownAuthority:
		return "its certificate is signed by an authority that this machine does not trust"
	case trust.WrongPin:
		return "its certificate authority is not the one whose fingerprint was given"
	case trust.WrongHost:
		return "its certificate is for another host name"
	case trust.OutOfDate:
		return "its certificate has expired or is not valid yet; compare the clocks of both machines"
	default:
		return "its certificate cannot be verified"
	}
}

// causeOf describes why there is no session. Equal causes give equal texts, whatever port or
// address the attempt had.
func causeOf(err error, server string) string {
	var (
		proxy    *connectproxy.Error
		refused  *tunnel.Error
		dns      *net.DNSError
		netError net.Error
		op       *net.OpError
	)
	switch {
	case errors.As(err, &proxy):
		return fmt.Sprintf("the proxy %s (%s) gives no connection: %s", proxy.Proxy, proxy.Variable,
			causeOf(proxy.Err, proxy.Proxy))
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	case errors.As(err, &refused) && refused.Detail == string(account.CodeWrongKind):
		// servers that know exporters do not answer so to an API key
		return fmt.Sprintf("this version of the server takes no API key of an exporter: update all servers (%s)",
			refused)
	case errors.As(err, &refused):
		return refused.Error()
	case trust.ProblemOf(err) != trust.NoProblem:
		return identityText(trust.ProblemOf(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("the name %s does not exist", dns.Name)
	case errors.As(err, &dns):
		return fmt.Sprintf("looking up %s: the name server does not answer", dns.Name)
	case errors.Is(err, errRefused):
		return fmt.Sprintf("nothing listens at %s (connection refused)", server)
	case errors.Is(err, errReset), errors.Is(err, errPipe):
		return "the connection was reset"
	case errors.Is(err, errNoHost), errors.Is(err, errNoNetwork):
		return "there is no network route to it"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "it does not speak TLS; is this the address of a fairlead-server?"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netError) && netError.Timeout():
		return "no answer in time"
	case errors.As(err, &op) && op.Err != nil:
		return op.Op + ": " + op.Err.Error() // without the ports, which differ each time
	}
	return err.Error()
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RoundTrip sends the proxied request to a target of the route. It tries the next one while no
// upstream has anything of the request, and once more for a retryable request without an answer.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	var failed error
	repeated := !isRetryable(r)
	t, end := x.route.nextTarget(r.Context())
	for end == nil {
		x.setTarget(t)
		res, err := x.send(r, &x.target)
		var next target
		switch {
		case err == nil:
			if !x.reportStatus(res.StatusCode) || repeated {
				return res, nil
			}
			repeated = true
			if next, end = x.route.nextTarget(r.Context()); end != nil {
				return res, nil //nolint:nilerr // no other target: this answer is returned
			}
			_ = res.Body.Close()
		case r.Context().Err() != nil:
			return nil, err
		case !x.route.recordFailure(&x.target, err) || x.replayBuffer.consumed():
			if repeated {
				return nil, err
			}
			repeated = true
			x.route.exclude(&x.target)
			fallthrough
		default:
			failed = moreSpecific(failed, err)
			next, end = x.route.nextTarget(r.Context())
		}
		t = next
	}
	return nil, x.route.finalError(end, failed)
}

// isRetryable reports whether the request may be sent twice.
func isRetryable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Body == nil
	}
	return false
}

// setTarget makes t the target that serves the request and releases the one before.
func (x *exchange) setTarget(t target) {
	if !t.preselected {
		x.target.release()
	}
	x.target = t
}

// reportStatus reports an answer's status to the backend. retry: another child may be tried.
func (x *exchange) reportStatus(status int) bool {
	return x.target.leaf.Outcome != nil && x.target.leaf.Outcome.Status(status)
}

// send sends the request to the target.
func (x *exchange) send(r *http.Request, t *target) (*http.Response, error) {
	out := r
	if x.route.attemptCount > 1 || r.Body != nil { // the attempt before may still use r
		out = r.WithContext(r.Context())
		u := *r.URL
		out.URL = &u
	}
	var body *replayReader
	if r.Body != nil {
		if x.replayBuffer == nil {
			x.replayBuffer = newReplayBuffer(r.Body)
		}
		body = x.replayBuffer.newReader()
		out.Body = body
	}
	res, err := x.sendTo(out, t, body)
	if err == nil {
		t.reportUp()
	}
	return res, err
}

func (x *exchange) sendTo(out *http.Request, t *target, body *replayReader) (*http.Response, error) {
	x.stream = nil
	private := x.info.Upstreams.required(out)
	res, err := x.sendOver(out, t, body, private)
	if err == nil {
		x.info.Upstreams.observe(res)
	}
	return res, err
}

// sendOver sends the request over connections that are private to the client, or shared.
func (x *exchange) sendOver(out *http.Request, t *target, body *replayReader, private bool) (*http.Response, error) {
	switch static := t.leaf.Static; {
	case t.leaf.Response != nil:
		return fixedResponse(out, t.leaf.Response), nil
	case static != nil && x.edge.opt.StaticDialer == nil:
		return nil, &staticDialError{errors.New("static addresses are not offered here")}
	case static != nil:
		out.URL.Scheme, out.URL.Host, out.Host = "http", static.Address, staticHost(static)
		if static.TLS {
			out.URL.Scheme = "https"
		}
		transport := x.edge.staticTransport(x.endpoint.AccountID)
		if private {
			transport = x.info.Upstreams.staticTransport(x.edge, x.endpoint.AccountID)
		}
		return roundTripStatic(transport, out, body)
	}
	ep := t.agent.Endpoint()
	out.URL.Scheme, out.URL.Host = "http", ep.ID // only a key of the pool
	out.Host = upstreamHost(ep, x.host)
	pool := x.edge.agentPool(t.agent)
	if private {
		pool = x.info.Upstreams.agentPool(x.edge, t.agent)
	}
	res, stream, err := pool.roundTrip(out, body)
	x.stream = stream
	return res, err
}

// exclude keeps a target that broke off out of the next attempt.
func (r *route) exclude(t *target) {
	if t.agent != nil {
		r.tried = append(r.tried, t.agent)
		r.groupErr = account.Errorf(account.CodeUpstreamBroken, "an upstream broke off")
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RoundTrip sends the proxied request to a target of the exchange's route, and to the next one as
// long as that can do no harm: while no upstream has anything of it; and once more where it only
// asks, and no answer has begun.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	var failed error
	repeated := !onlyAsks(r)
	t, end := x.route.next(r.Context())
	for end == nil {
		x.take(t)
		res, err := x.send(r, &x.target)
		var next target
		switch {
		case err == nil:
			if !x.unwell(res.StatusCode) || repeated {
				return res, nil
			}
			repeated = true
			if next, end = x.route.next(r.Context()); end != nil {
				return res, nil //nolint:nilerr // better than nothing
			}
			_ = res.Body.Close()
		case r.Context().Err() != nil:
			return nil, err
		case !x.route.failed(&x.target, err) || x.replay.begun():
			if repeated {
				return nil, err
			}
			repeated = true
			x.route.avoid(&x.target)
			fallthrough
		default:
			failed = telling(failed, err)
			next, end = x.route.next(r.Context())
		}
		t = next
	}
	return nil, x.route.sum(end, failed)
}

// onlyAsks reports whether the request may be sent twice.
func onlyAsks(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.Body == nil
	}
	return false
}

// take makes t the target that serves the request.
func (x *exchange) take(t target) {
	if !t.first {
		x.target.release()
	}
	x.target = t
}

// unwell tells a backend of an answer's status, and says whether another child is to answer.
func (x *exchange) unwell(status int) bool {
	return x.target.leaf.Outcome != nil && x.target.leaf.Outcome.Status(status)
}

// send sends the request to the target.
func (x *exchange) send(r *http.Request, t *target) (*http.Response, error) {
	out := r
	if x.route.count > 1 || r.Body != nil { // the one before may still look at its own
		out = r.WithContext(r.Context())
		u := *r.URL
		out.URL = &u
	}
	var body *attempt
	if r.Body != nil {
		if x.replay == nil {
			x.replay = newReplay(r.Body)
		}
		body = x.replay.attempt()
		out.Body = body
	}
	res, err := x.sendTo(out, t, body)
	if err == nil {
		t.up()
	}
	return res, err
}

func (x *exchange) sendTo(out *http.Request, t *target, body *attempt) (*http.Response, error) {
	x.stream = nil
	switch static := t.leaf.Static; {
	case t.leaf.Response != nil:
		return canned(out, t.leaf.Response), nil
	case static != nil && x.edge.opt.DialStatic == nil:
		return nil, &notConnected{errors.New("static addresses are not offered here")}
	case static != nil:
		out.URL.Scheme, out.URL.Host, out.Host = "http", static.Address, staticHost(static)
		if static.TLS {
			out.URL.Scheme = "https"
		}
		return traced(x.edge.staticTransport(x.endpoint.AccountID), out, body)
	}
	ep := t.agent.Endpoint()
	out.URL.Scheme, out.URL.Host = "http", ep.ID // a name for the pool; streams are not found by it
	out.Host = upstreamHost(ep, x.host)
	res, stream, err := x.edge.pool(t.agent).roundTrip(out, body)
	x.stream = stream
	return res, err
}

// avoid keeps a target that broke off out of the attempt that follows.
func (r *route) avoid(t *target) {
	if t.agent != nil {
		r.tried = append(r.tried, t.agent)
		r.down = account.Errorf(account.CodeUpstreamBroken, "an upstream broke off")
	}
}

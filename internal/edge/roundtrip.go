// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"net/http"
)

// delivery sends a request to the targets of its route, one after the other, until one answers. It is
// the transport of the proxy.
type delivery struct {
	upstreams    *upstreams
	private      *PrivateUpstreams
	accountID    string
	host         string // Host header of the client's request
	route        route
	replayBuffer *replayBuffer // buffer of the request's body, once it is sent
	target       target        // the target that serves the request, or is being tried
	flusher      *flusher      // flusher of the answer's connection; nil where it is not known, or shared
}

// RoundTrip sends the proxied request to a target of the route. It tries the next one while no
// upstream has anything of the request, and once more for a retryable request without an answer.
func (d *delivery) RoundTrip(r *http.Request) (*http.Response, error) {
	var failed error
	repeated := !isRetryable(r)
	t, end := d.route.nextTarget(r.Context())
	for end == nil {
		d.setTarget(t)
		res, err := d.send(r, &d.target)
		var next target
		switch {
		case err == nil && (!d.reportStatus(res.StatusCode) || repeated):
			return res, nil
		case r.Context().Err() != nil: // the answer may have come before the transport noticed it
			if err == nil {
				_ = res.Body.Close()
			}
			return nil, r.Context().Err()
		case err == nil:
			repeated = true
			if next, end = d.route.nextTarget(r.Context()); end != nil {
				return res, nil //nolint:nilerr // no other target: this answer is returned
			}
			_ = res.Body.Close()
		case !d.route.recordFailure(&d.target, err) || d.replayBuffer.consumed():
			if repeated {
				return nil, err
			}
			repeated = true
			d.route.exclude(&d.target)
			fallthrough
		default:
			failed = moreSpecific(failed, err)
			next, end = d.route.nextTarget(r.Context())
		}
		t = next
	}
	return nil, d.route.finalError(end, failed)
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
func (d *delivery) setTarget(t target) {
	if !t.preselected {
		d.target.release()
	}
	d.target = t
}

// reportStatus reports an answer's status to the backend. retry: another child may be tried.
func (d *delivery) reportStatus(status int) bool {
	return d.target.leaf.Outcome != nil && d.target.leaf.Outcome.Status(status)
}

// send sends the request to the target.
func (d *delivery) send(r *http.Request, t *target) (*http.Response, error) {
	out := r
	if d.route.attemptCount > 1 || r.Body != nil { // the attempt before may still use r
		out = r.WithContext(r.Context())
		u := *r.URL
		out.URL = &u
	}
	var body *replayReader
	if r.Body != nil {
		if d.replayBuffer == nil {
			d.replayBuffer = newReplayBuffer(r.Body)
		}
		body = d.replayBuffer.newReader()
		out.Body = body
	}
	d.flusher = nil
	res, err := d.sendOver(out, t, body, d.private.pools(d.upstreams, out))
	if err == nil {
		d.private.observe(res)
		t.reportUp()
	}
	return res, err
}

// sendOver sends the request over a connection of the pools.
func (d *delivery) sendOver(out *http.Request, t *target, body *replayReader, p *pools) (*http.Response, error) {
	switch static := t.leaf.Static; {
	case t.leaf.Response != nil:
		return fixedResponse(out, t.leaf.Response), nil
	case static != nil && d.upstreams.static == nil:
		return nil, &staticDialError{errors.New("static addresses are not offered here")}
	case static != nil:
		out.URL.Scheme, out.URL.Host, out.Host = "http", static.Address, staticHost(static)
		if static.TLS {
			out.URL.Scheme = "https"
		}
		return roundTripStatic(p.address(d.upstreams, d.accountID), out, body)
	}
	ep := t.agent.Endpoint()
	out.URL.Scheme, out.URL.Host = "http", ep.ID // only a key of the pool
	out = withUpstreamOrigin(out, ep, d.host)
	out.Host = upstreamHost(ep, d.host)
	res, flusher, err := p.agent(d.upstreams, t.agent).roundTrip(out, body)
	d.flusher = flusher
	return res, err
}

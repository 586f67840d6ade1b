// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// TrustRules are the rules about whose agents may answer for endpoints; *trustrules.Watcher
// implements it.
type TrustRules interface {
	// Snapshot returns the current rules.
	Snapshot() *endpointtrust.Rules
	// Changed receives after the rules have changed.
	Changed() <-chan struct{}
}

// liveSeal is whom an open connection trusted for which endpoint.
type liveSeal struct {
	url   account.EndpointURL
	trust *sealed.Trust
}

// maxTrusts bounds the settings of trust whose TLS sessions are kept to be resumed.
const maxTrusts = 1024

// sealing decides which connections are sealed, and which agents may answer them. It ends open ones
// whose agents are not trusted any more. A nil sealing seals none. Its methods are safe for concurrent
// use.
type sealing struct {
	rules   TrustRules
	caller  *authority.Source  // caller is the certificate that proves who calls; nil = none.
	token   sealed.TokenSource // token does, too; nil = none.
	log     *slog.Logger
	updated broadcaster  // updated is woken when the rules have changed.
	changed *broadcaster // changed is woken when the status has changed.

	mu     sync.Mutex
	trusts map[string]*sealed.Trust // by Decision.Generation
	live   map[*sealed.Conn]liveSeal
}

// newSealing returns nil without rules.
func newSealing(o RuleOptions, log *slog.Logger, changed *broadcaster) *sealing {
	if o.Trust == nil {
		return nil
	}
	return &sealing{rules: o.Trust, caller: o.Caller, token: o.CallerToken, log: log, changed: changed,
		trusts: map[string]*sealed.Trust{}, live: map[*sealed.Conn]liveSeal{}}
}

// callerInterval is how often the caller's certificate and token are looked at.
const callerInterval = 10 * time.Second

// run wakes what waits for changes of the rules or of the status, ends spares and the connections that a
// change forbids, and logs problems of the caller's proof, until ctx is done.
func (s *sealing) run(ctx context.Context, relay *forward.Relay) error {
	if s == nil {
		return nil
	}
	for logged := ""; ; {
		if problem := s.callerProblem(); problem != logged {
			logged = problem
			if problem == "" {
				s.log.Info("what proves to agents who calls is good again")
			} else {
				s.log.Warn("agents that require proof of who calls refuse this one, or soon will", "problem", problem)
			}
			s.changed.broadcast()
		}
		select {
		case <-s.rules.Changed():
			s.updated.broadcast()
			s.changed.broadcast()
			relay.DropSpares()
			s.mu.Lock()
			live := maps.Clone(s.live)
			s.mu.Unlock()
			for conn, l := range live {
				s.endUntrusted(conn, l)
			}
		case <-time.After(callerInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// callerProblem returns what is wrong with the caller's token or certificate, or soon will be; "" =
// nothing.
func (s *sealing) callerProblem() string {
	var err error
	if s.token != nil {
		_, err = s.token()
	}
	if err == nil && s.caller != nil {
		err = s.caller.Problem()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// callerEnd returns when the caller's certificate ends, in seconds since 1970; 0 without one.
func (s *sealing) callerEnd() float64 {
	if s == nil || s.caller == nil {
		return 0
	}
	pair, err := s.caller.Certificate()
	if err != nil {
		return 0
	}
	return float64(pair.Leaf.NotAfter.Unix())
}

// trustOf returns what a connection with the endpoint trusts; nil: it is not sealed. Until the
// deadline it waits for rules that are not known yet, and for the first key of an endpoint.
func (s *sealing) trustOf(
	ctx context.Context, u account.EndpointURL, deadline time.Time,
) (*sealed.Trust, *forward.Failure) {
	if s == nil {
		return nil, nil
	}
	d := s.decide(ctx, u, deadline)
	switch {
	case d.Refused != "":
		return nil, untrusted(u, d.Detail)
	case d.Trust.Mode == sealed.Off:
		return nil, nil
	}
	t, err := s.trust(&d)
	if err != nil {
		return nil, untrusted(u, err.Error())
	}
	return t, nil
}

func (s *sealing) trust(d *endpointtrust.Decision) (*sealed.Trust, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trusts[d.Generation]; t != nil {
		return t, nil
	}
	if s.caller != nil {
		d.Trust.Proof = s.caller.Certificate
	}
	if d.ByInstallation { // else a namespace's agent could present the token to others
		d.Trust.Token = s.token
	}
	t, err := sealed.NewTrust(d.Trust)
	if err != nil {
		return nil, err
	}
	if len(s.trusts) >= maxTrusts {
		clear(s.trusts)
	}
	s.trusts[d.Generation] = t
	return t, nil
}

// watch ends an open connection as soon as its agent is not trusted any more, until stop is called.
func (s *sealing) watch(conn *sealed.Conn, u account.EndpointURL, by *sealed.Trust) (stop func()) {
	l := liveSeal{u, by}
	s.mu.Lock()
	s.live[conn] = l
	s.mu.Unlock()
	s.endUntrusted(conn, l) // the rules may have changed meanwhile
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, conn)
	}
}

// endUntrusted ends a connection if it is known for certain that its agent is not trusted: rules that
// contradict each other, or do not require a seal any more, end none.
func (s *sealing) endUntrusted(conn *sealed.Conn, l liveSeal) {
	d := s.rules.Snapshot().Decide(l.url)
	if d.Refused != "" || d.Trust.Mode == sealed.Off {
		return
	}
	if t, err := s.trust(&d); err == nil && t != l.trust && !t.Trusts(conn, l.url) {
		_ = conn.Abort()
	}
}

func (s *sealing) decide(ctx context.Context, u account.EndpointURL, deadline time.Time) endpointtrust.Decision {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		updated := s.updated.next()
		d := s.rules.Snapshot().Decide(u)
		if d.Refused != endpointtrust.ReasonUnknown && d.Refused != endpointtrust.ReasonNotPinned {
			return d
		}
		select {
		case <-updated:
		case <-ctx.Done():
			return d
		}
	}
}

// untrusted returns a failure whose sentence names no objects: the client may not read them.
func untrusted(u account.EndpointURL, detail string) *forward.Failure {
	f := forward.NewFailure(trafficerror.Untrusted(), u)
	f.Msg += ": its rules of trust refuse it, as the status of the forwarder says."
	f.Detail = " " + detail + "."
	return f
}

// missing returns which rules are not known yet that the listeners need, or "".
func (s *sealing) missing(all []ListenerStatus) string {
	if s == nil {
		return ""
	}
	return unlisted("EndpointTrust", all, s.rules.Snapshot().Knows)
}

// TrustStatus is which EndpointTrust objects a forwarder enforces, as /status shows it.
type TrustStatus struct {
	Complete bool `json:"complete"` // Complete reports that all EndpointTrust objects were listed.
	// Policies has the digest of each namespace's EndpointTrust objects, of namespaces that have some;
	// see endpointaccess.Digest.
	Policies map[string]string `json:"policies,omitempty"`
	// Caller is the name that the forwarder's certificate proves to agents, and CallerProblem what is
	// wrong with that or the token, or soon will be.
	Caller        string `json:"caller,omitempty"`
	CallerProblem string `json:"caller_problem,omitempty"`
}

// status returns nil for a nil sealing.
func (s *sealing) status() *TrustStatus {
	if s == nil {
		return nil
	}
	rules := s.rules.Snapshot()
	st := &TrustStatus{Complete: rules.Complete(), Policies: rules.Digests, CallerProblem: s.callerProblem()}
	if s.caller != nil {
		st.Caller = s.caller.Caller()
	}
	return st
}

// SealRefusal is why the agents that answered at a port are not trusted.
type SealRefusal struct {
	At      time.Time     `json:"at"`
	Reason  sealed.Reason `json:"reason"`
	Message string        `json:"message"` // the sentence of Failure

	generation string       // generation is that of the trust in force.
	repeated   atomic.Int64 // repeated is when it was last repeated, in Unix nanoseconds.
}

// outdatedRefusal is how long a refusal is reported after it was last repeated: only a call that passes
// the same forwarder would show that the agent was mended.
const outdatedRefusal = 10 * time.Minute

func (r *SealRefusal) isOutdated() bool {
	return time.Since(time.Unix(0, r.repeated.Load())) > outdatedRefusal
}

// repeatedRefusal is how long a refusal with another message, such as one that names another key, is
// reported as the one before.
const repeatedRefusal = time.Minute

// recordRefusal records a connection that failed because the agent's seal was refused; f may be nil.
func (s *sealing) recordRefusal(c *clientConn, f *forward.Failure) {
	if f == nil {
		return
	}
	r := &SealRefusal{At: time.Now().UTC(), Reason: f.Untrusted, Message: f.Msg,
		generation: s.rules.Snapshot().Decide(c.URL).Generation}
	switch {
	case f.Code == account.CodeNotSealed:
		r.Reason = sealed.NotSealed
	case r.Reason == "":
		return
	}
	c.stats.countSeal(r.Reason)
	r.repeated.Store(r.At.UnixNano())
	last := c.stats.seal.Load()
	if last != nil && last.Reason == r.Reason && last.generation == r.generation && !last.isOutdated() &&
		(last.Message == r.Message || r.At.Sub(last.At) < repeatedRefusal) {
		last.repeated.Store(r.At.UnixNano())
		return
	}
	c.stats.seal.Store(r)
	s.changed.broadcast()
}

// recordOpened records a sealed connection that an agent opened; a nil sealing records none.
func (s *sealing) recordOpened(p *portStats) {
	if s == nil {
		return
	}
	p.sealed.Inc()
	if p.seal.Load() != nil && p.seal.Swap(nil) != nil {
		s.changed.broadcast()
	}
}

// allowsPlain reports whether a connection that failed as no agent seals may be plain: the rules prefer
// a seal, and neither they nor this forwarder know of a sealed connection.
func (s *sealing) allowsPlain(c *clientConn, f *forward.Failure) bool {
	return f != nil && f.Code == account.CodeNotSealed && c.stats.firstKey.Load() == nil &&
		s.rules.Snapshot().Decide(c.URL).Trust.Mode == sealed.Prefer
}

// recordKey has the manager record that the URL was sealed, where the rules prefer a seal.
func (s *sealing) recordKey(c *clientConn, conn *sealed.Conn) {
	if s.rules.Snapshot().Decide(c.URL).Trust.Mode != sealed.Prefer {
		return
	}
	if key := sealed.FormatKey(conn.Peer()); c.stats.firstKey.CompareAndSwap(nil, &key) {
		s.changed.broadcast()
	}
}

// setSeals sets SealKey. It drops outdated refusals, those under a trust that is not in force any more, and
// keys that the manager has recorded.
func (s *sealing) setSeals(all []ListenerStatus) {
	if s == nil {
		return
	}
	for i := range all {
		l := &all[i]
		u := account.EndpointURL{Scheme: l.Scheme, Host: l.Hostname, Port: l.ServicePort}
		d := s.rules.Snapshot().Decide(u)
		if r := l.SealRefused; r != nil && (d.Generation != r.generation || r.isOutdated()) {
			l.SealRefused = nil
		}
		if d.Refused == "" && d.Trust.Mode != sealed.Prefer {
			l.stats.firstKey.Store(nil)
		} else if key := l.stats.firstKey.Load(); key != nil {
			l.SealKey = *key
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// binder binds and unbinds what sessions ask for: it holds each bind against the rules of its
// credential and the limits, records it, adds it to the members, and publishes what it has changed.
type binder struct {
	registry    *registry
	rights      *rights
	holdings    *holdingsSync
	ender       *ender
	publisher   *publisher
	limits      bindLimiter
	store       bindStore
	checkPolicy account.PolicyChecker // nil refuses traffic policies
	edge        Edge
	meter       Meter
	log         *slog.Logger
}

// bindStore has the rows of what sessions bind.
type bindStore interface {
	account.Binder
	account.TunnelStarter
	ListEndpoints(context.Context, string, account.EndpointFilter, account.Page) (*account.EndpointPage, error)
}

// Bind binds the endpoint or the labelled tunnel that the session asks for.
func (b *binder) Bind(ctx context.Context, ts *tunnel.Session, want tunnel.Bind) (tunnel.Bound, error) {
	bound, err := b.bindForSession(ctx, ts, want)
	if err != nil {
		refusal := refusal(b.log, err)
		b.meter.CountBind(string(refusal.Code))
		return tunnel.Bound{}, refusal
	}
	b.meter.CountBind("accepted")
	return bound, nil
}

func (b *binder) bindForSession(ctx context.Context, ts *tunnel.Session, want tunnel.Bind) (tunnel.Bound, error) {
	t, err := b.agentSession(ts)
	if err != nil {
		return tunnel.Bound{}, err
	}
	if len(want.Labels) > 0 {
		return b.bindLabels(ctx, t, want)
	}
	token := b.registry.tokenOf(t)
	result, rebound, err := b.bind(ctx, t, token, want)
	if err != nil {
		return tunnel.Bound{}, err
	}
	b.publishBind(ctx, t, bindEffect{from: result.ReplacedSessionID, rebound: rebound, policy: result.PolicyReplaced,
		pool: b.poolSessions(ctx, result, want)})
	if b.registry.tokenOf(t) != token { // its rules have changed before a comparison saw the endpoint
		if problem := b.rights.problemOf(t); problem != nil {
			return tunnel.Bound{}, b.ender.evictForbidden(t, problem)
		}
	}
	b.log.Info("endpoint bound", "endpoint", result.Endpoint.ID, "url", result.Endpoint.URL, "session", t.id,
		"account", t.accountID, "pooling", want.PoolingEnabled, "resumed", want.ResumeSecret != "",
		"took_from", result.ReplacedSessionID)
	b.edge.EndpointBound(&result.Endpoint)
	return tunnel.Bound{EndpointID: result.Endpoint.ID, URL: result.Endpoint.URL, ResumeSecret: result.ResumeSecret,
		OwnerEndpointID: result.OwnerEndpointID}, nil
}

// agentSession returns the session of an agent.
func (b *binder) agentSession(ts *tunnel.Session) (*session, error) {
	t := b.registry.session(ts.ID())
	if t == nil || t.hello.Role != tunnel.RoleAgent {
		return nil, &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "only agents bind endpoints"}
	}
	return t, nil
}

// bind records the endpoint, which the credential must admit, and adds it. rebound reports whether
// the session had it already.
func (b *binder) bind(
	ctx context.Context, t *session, token *account.TunnelCredential, want tunnel.Bind,
) (result *account.BindResult, rebound bool, err error) {
	asked := time.Now()
	req, err := bindRequest(t, want)
	if err != nil {
		return nil, false, err
	}
	if problem := checkHolder(token, req.Bindings[0], req.URL, req.Owner); problem != nil {
		return nil, false, problem
	}
	if err := b.limits.limit(ctx, t.credentialID, want.ResumeSecret != "" || req.Owner != nil); err != nil {
		return nil, false, err
	}
	if err := b.addPolicy(&req, want.TrafficPolicy); err != nil {
		return nil, false, err
	}
	if problem := checkPolicy(token, req.PolicyFacts); problem != nil {
		return nil, false, problem
	}
	req.Holds = func(endpointID string) bool { return b.registry.members.holds(t, endpointID, want.BindID) }
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	if result, err = b.store.Bind(ctx, req); err != nil {
		return nil, false, err
	}
	result.Endpoint.TrafficPolicy = req.TrafficPolicy // rows from the store lack it
	return result, b.registry.members.add(t, result, want.BindID, asked), nil
}

// addPolicy compiles the traffic policy of a bind. That is expensive: it comes after the rate
// limit.
func (b *binder) addPolicy(r *account.BindRequest, policy string) (err error) {
	bad := func(rule string) error { return account.Invalid("traffic_policy", account.NotShown, rule) }
	switch {
	case policy == "":
		return nil
	case b.checkPolicy == nil:
		return bad("this server takes no traffic policies; leave it out")
	case len(policy) > account.MaxTrafficPolicy:
		return bad(fmt.Sprintf("has %d bytes; at most %d are allowed", len(policy), account.MaxTrafficPolicy))
	}
	r.TrafficPolicy = policy
	r.PolicyFacts, err = b.checkPolicy(policy, r.Scheme, r.Bindings[0])
	return err
}

// Unbind handles an agent's request to unbind an endpoint.
func (b *binder) Unbind(ctx context.Context, ts *tunnel.Session, endpointID string) error {
	t, err := b.agentSession(ts)
	if err != nil {
		return err
	}
	if !b.registry.members.has(t, endpointID) { // it may have been bound on another server a moment ago
		b.holdings.refresh(ctx, t)
	}
	held, err := b.unbindTunnel(ctx, t, endpointID)
	if !held {
		err = b.unbindEndpoint(ctx, t, endpointID)
	}
	if err == nil && b.publisher.replicas != nil {
		select {
		case <-b.publisher.publishTogether(publicationKind{accountID: t.accountID}, t.id):
		case <-ctx.Done():
		}
	}
	return err
}

func (b *binder) unbindEndpoint(ctx context.Context, t *session, endpointID string) error {
	if !b.registry.members.has(t, endpointID) {
		return &tunnel.Error{Code: tunnel.CodeInvalid, Detail: string(account.CodeNotFound),
			Msg: fmt.Sprintf("this session does not hold endpoint %q", endpointID)}
	}
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	if err := b.store.Unbind(ctx, t.accountID, endpointID, t.id); err != nil {
		return refusal(b.log, err)
	}
	b.registry.members.remove(t, endpointID)
	b.log.Info("endpoint unbound", "endpoint", endpointID, "session", t.id, "account", t.accountID)
	return nil
}

// bindEffect is what a bind has ended or changed.
type bindEffect struct {
	from    string   // the session that had it; "" = none
	rebound bool     // the session had bound it already
	policy  bool     // the traffic policy was replaced
	pool    []string // other sessions with members of its pool, which it has changed
}

// publishBind ends the session that a bind of t has taken over, and tells the other servers. It
// waits for them if the bind ended or changed something. New endpoints need not be known: a server
// that does not know one asks the others.
func (b *binder) publishBind(ctx context.Context, t *session, e bindEffect) {
	b.ender.endTakenOver(ctx, e.from, t)
	switch {
	case b.publisher.replicas == nil:
	case e.from != "" && e.from != t.id:
		b.publisher.publishBriefly(t.accountID, takenOver+t.id, e.policy, append(e.pool, e.from, t.id)...)
	case e.rebound || e.policy || len(e.pool) > 0:
		b.publisher.publishBriefly(t.accountID, "", e.policy, append(e.pool, t.id)...)
	default:
		b.publisher.publishLater(t)
	}
}

// poolSessions returns the sessions of the other endpoints at the URL, if the bind may have
// replaced their traffic policy.
func (b *binder) poolSessions(ctx context.Context, r *account.BindResult, want tunnel.Bind) []string {
	if b.publisher.replicas == nil || !want.ReplacePoolPolicy && (want.Owner == nil || !r.PolicyReplaced) {
		return nil
	}
	ep := &r.Endpoint
	page, err := b.store.ListEndpoints(ctx, ep.AccountID,
		account.EndpointFilter{Bindings: ep.Bindings, URL: ep.URL}, account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		b.log.Warn("the pool of an endpoint could not be read; its policy follows with the next comparison",
			"endpoint", ep.ID, "err", err)
		return nil
	}
	var ids []string
	for _, other := range page.Endpoints {
		if other.TunnelSession != nil && other.ID != ep.ID {
			ids = append(ids, other.TunnelSession.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

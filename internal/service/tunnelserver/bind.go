// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

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
	listenerURL, unreachable := b.edge.EndpointBound(&result.Endpoint)
	return tunnel.Bound{EndpointID: result.Endpoint.ID, URL: result.Endpoint.URL, ResumeSecret: result.ResumeSecret,
		OwnerEndpointID: result.OwnerEndpointID, ListenerURL: listenerURL, Unreachable: unreachable}, nil
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

// bindRequest validates every field of a bind except the policy, and lists all broken rules.
func bindRequest(t *session, b tunnel.Bind) (account.BindRequest, error) {
	owner, err := t.bindOwner(b)
	if err != nil {
		return account.BindRequest{}, err
	}
	binding := cmp.Or(b.Binding, account.BindingKubernetes)
	u, err := account.ParseBindingURL(binding, b.URL)
	r := account.BindRequest{Endpoint: account.NewEndpoint(binding, u), CredentialID: t.credentialID, SessionID: t.id,
		ResumeSecret: b.ResumeSecret, ReplacePoolPolicy: b.ReplacePoolPolicy}
	r.AccountID, r.Owner = t.accountID, owner
	r.EndpointSettings = account.EndpointSettings{Name: b.Name, Description: b.Description, Metadata: b.Metadata,
		PoolingEnabled: b.PoolingEnabled, UpstreamURL: b.UpstreamURL, UpstreamProtocol: b.UpstreamProtocol,
		ServiceLabels: b.ServiceLabels, SealKey: b.SealKey, HostMode: cmp.Or(b.HostMode, account.HostPassthrough)}
	broken := account.FieldsOf(err)
	for _, f := range account.FieldsOf(r.Validate()) {
		if f.Field != "url" && (f.Field != "binding" || len(broken) == 0) { // reported by the parser already
			broken = append(broken, f)
		}
	}
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	broken = append(broken, account.FieldsOf(checkSealed(binding, b))...)
	broken = append(broken,
		account.FieldsOf(account.ValidateHTTPOptions(r.Scheme, r.UpstreamProtocol, r.HostMode))...)
	if len(broken) > 0 {
		return account.BindRequest{}, account.InvalidAll(broken)
	}
	return r, nil
}

// checkSealed refuses what the service cannot do for a sealed endpoint, as it reads none of its bytes.
func checkSealed(binding string, b tunnel.Bind) error {
	switch {
	case b.SealKey == "":
	case binding != account.BindingKubernetes && binding != account.BindingClusterset:
		return account.Invalid("binding", binding, "a sealed endpoint has the binding kubernetes: only forwarders seal")
	case b.TrafficPolicy != "" || b.ReplacePoolPolicy:
		return account.Invalid("traffic_policy", account.NotShown, "the service cannot apply a policy to a sealed "+
			"endpoint, whose bytes it does not read: leave out the policy, or --sealed")
	}
	return nil
}

func checkUpstream(raw string) error {
	if u, err := url.Parse(raw); err != nil || u.User != nil {
		return account.Invalid("upstream_url", account.NotShown, "must be a URL without user name and password")
	}
	return nil
}

// tunnelRequest returns the labelled tunnel that a bind asks for, or all broken rules.
func tunnelRequest(t *session, b tunnel.Bind) (account.LabelledTunnel, error) {
	want := account.LabelledTunnel{AccountID: t.accountID, TunnelSession: account.Ref{ID: t.id}, Labels: b.Labels,
		Metadata: b.Metadata, ForwardsTo: b.UpstreamURL, UpstreamProtocol: b.UpstreamProtocol}
	broken := account.FieldsOf(want.Validate())
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	for _, f := range []account.FieldError{
		{Field: "url", Value: b.URL}, {Field: "binding", Value: b.Binding}, {Field: "name", Value: b.Name},
		{Field: "description", Value: b.Description},
		{Field: "host_mode", Value: b.HostMode}, {Field: "traffic_policy", Value: b.TrafficPolicy},
		{Field: "seal_key", Value: b.SealKey},
	} {
		if f.Value != "" {
			f.Value, f.Rule = account.Shorten(f.Value), "a labelled tunnel has none; leave it out"
			broken = append(broken, f)
		}
	}
	if b.PoolingEnabled || b.ReplacePoolPolicy {
		broken = append(broken, account.FieldError{Field: "pooling_enabled", Value: "true",
			Rule: "tunnels with the same labels share traffic as they are; leave it out"})
	}
	if b.Owner != nil {
		broken = append(broken, account.FieldError{Field: "owner", Value: account.Shorten(b.Owner.Name),
			Rule: "a labelled tunnel has none; leave it out"})
	}
	if len(broken) > 0 {
		return account.LabelledTunnel{}, account.InvalidAll(broken)
	}
	return want, nil
}

// bindOwner returns the owner of a bind, or nil. Its cluster is that of the session's credential: a
// session never states one.
func (t *session) bindOwner(b tunnel.Bind) (*account.Owner, error) {
	switch {
	case t.clusterUID == "" && (b.Owner != nil || b.Binding == account.BindingClusterset):
		return nil, errNoOwner(t.credentialID)
	case b.Owner == nil:
		return nil, nil
	}
	return &account.Owner{Cluster: t.clusterUID, Kind: b.Owner.Kind, Namespace: b.Owner.Namespace, Name: b.Owner.Name,
		UID: b.Owner.UID}, nil
}

func errNoOwner(credentialID string) *account.Error {
	return account.Errorf(account.CodeScope,
		"authtoken %s cannot bind endpoints of Kubernetes objects: an exporter needs "+
			"an API key with scope exporter, of its cluster", credentialID)
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

// bindEffect is the effect of a bind on other sessions.
type bindEffect struct {
	from    string   // session that held the endpoint before; "" = none
	rebound bool     // rebound reports that the session had bound the endpoint already.
	policy  bool     // policy reports that the traffic policy was replaced.
	pool    []string // other sessions with members of the pool that the bind has changed
}

// publishBind ends the session that a bind of t has taken over, and notifies the other servers. It
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

// Binds per second with one credential. Resumes after a restart of the service, and what an exporter
// binds, arrive by the thousand and are not refused; they wait for a rate that the store can sustain,
// so that an invented resume secret does not bypass the limit.
const (
	bindsPerSecond   = 20
	resumesPerSecond = 1000
)

// bindLimiter limits how often a credential binds.
type bindLimiter struct {
	mu   sync.Mutex
	byID map[string]*bindLimits // by credential id
}

type bindLimits struct {
	binds, resumes *rate.Limiter
}

// limit returns CodeTooMany when the credential binds too often. A resume, and a bind of an
// exporter, waits instead.
func (b *bindLimiter) limit(ctx context.Context, credentialID string, waits bool) error {
	b.mu.Lock()
	l := b.byID[credentialID]
	if l == nil {
		l = &bindLimits{binds: rate.NewLimiter(bindsPerSecond, bindsPerSecond),
			resumes: rate.NewLimiter(resumesPerSecond, resumesPerSecond)}
		b.byID[credentialID] = l
	}
	b.mu.Unlock()
	tooMany := account.Errorf(account.CodeTooMany, "authtoken %s bound too many endpoints: at most %d a second",
		credentialID, bindsPerSecond)
	if waits {
		if l.resumes.Wait(ctx) != nil {
			return tooMany
		}
		return nil
	}
	if !l.binds.Allow() {
		return tooMany
	}
	return nil
}

// forget removes the limits of tokens that have not bound for a while: a full bucket has no
// state.
func (b *bindLimiter) forget(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, l := range b.byID {
		if l.binds.TokensAt(now) >= bindsPerSecond && l.resumes.TokensAt(now) >= resumesPerSecond {
			delete(b.byID, id)
		}
	}
}

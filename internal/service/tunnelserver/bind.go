// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Bind binds the endpoint or the labelled tunnel that the session asks for.
func (s *Server) Bind(ctx context.Context, ts *tunnel.Session, b tunnel.Bind) (tunnel.Bound, error) {
	bound, err := s.bindForSession(ctx, ts, b)
	var refusal *tunnel.Error
	switch {
	case err == nil:
		s.opt.Meter.CountBind("accepted")
	case errors.As(err, &refusal):
		s.opt.Meter.CountBind(string(refusal.Code))
	default:
		s.opt.Meter.CountBind(string(tunnel.CodeInternal))
	}
	return bound, err
}

func (s *Server) bindForSession(ctx context.Context, ts *tunnel.Session, b tunnel.Bind) (tunnel.Bound, error) {
	t, err := s.agentSession(ts)
	if err != nil {
		return tunnel.Bound{}, err
	}
	if len(b.Labels) > 0 {
		return s.bindLabels(ctx, t, b)
	}
	token := s.tokenOf(t)
	result, rebound, err := s.bind(ctx, t, token, b)
	if err != nil {
		return tunnel.Bound{}, s.refusal(err)
	}
	s.publishBind(ctx, t, bindEffect{from: result.ReplacedSessionID, rebound: rebound, policy: result.PolicyReplaced,
		pool: s.poolSessions(ctx, result, b)})
	if now := s.tokenOf(t); now != token { // its rules have changed before the watchdog saw the endpoint
		if problem := s.forbidden(t, now); problem != nil {
			return tunnel.Bound{}, s.evictForbidden(t, problem)
		}
	}
	s.log.Info("endpoint bound", "endpoint", result.Endpoint.ID, "url", result.Endpoint.URL, "session", t.id, "account",
		t.accountID,
		"pooling", b.PoolingEnabled, "resumed", b.ResumeSecret != "", "took_from", result.ReplacedSessionID)
	s.opt.Edge.EndpointBound(&result.Endpoint)
	return tunnel.Bound{EndpointID: result.Endpoint.ID, URL: result.Endpoint.URL, ResumeSecret: result.ResumeSecret,
		OwnerEndpointID: result.OwnerEndpointID}, nil
}

// agentSession returns the session of an agent.
func (s *Server) agentSession(ts *tunnel.Session) (*session, error) {
	t := s.session(ts.ID())
	if t == nil || t.hello.Role != tunnel.RoleAgent {
		return nil, &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "only agents bind endpoints"}
	}
	return t, nil
}

// bind records the endpoint, which the credential must admit, and adds it. rebound reports whether
// the session had it already.
func (s *Server) bind(
	ctx context.Context, t *session, token *account.TunnelCredential, b tunnel.Bind,
) (result *account.BindResult, rebound bool, err error) {
	asked := time.Now()
	req, err := bindRequest(t, b)
	if err != nil {
		return nil, false, err
	}
	if problem := checkHolder(token, req.Binding, req.URL.String(), req.Owner); problem != nil {
		return nil, false, problem
	}
	if err := s.limitBinds(ctx, t.credentialID, b.ResumeSecret != "" || req.Owner != nil); err != nil {
		return nil, false, err
	}
	if err := s.addPolicy(&req, b.TrafficPolicy); err != nil {
		return nil, false, err
	}
	if problem := checkPolicy(token, req.PolicyFacts); problem != nil {
		return nil, false, problem
	}
	req.Holds = func(endpointID string) bool { return s.holds(t, endpointID, b.BindID) }
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	if result, err = s.opt.Store.Bind(ctx, req); err != nil {
		return nil, false, err
	}
	result.Endpoint.TrafficPolicy = req.TrafficPolicy // rows from the store lack it
	return result, s.addMember(t, result, b.BindID, asked), nil
}

// addPolicy compiles the traffic policy of a bind. That is expensive: it comes after the rate
// limit.
func (s *Server) addPolicy(r *account.BindRequest, policy string) (err error) {
	bad := func(rule string) error { return account.Invalid("traffic_policy", account.NotShown, rule) }
	switch {
	case policy == "":
		return nil
	case s.opt.CheckPolicy == nil:
		return bad("this server takes no traffic policies; leave it out")
	case len(policy) > account.MaxTrafficPolicy:
		return bad(fmt.Sprintf("has %d bytes; at most %d are allowed", len(policy), account.MaxTrafficPolicy))
	}
	r.TrafficPolicy = policy
	r.PolicyFacts, err = s.opt.CheckPolicy(policy, r.URL.Scheme, r.Binding)
	return err
}

// bindRequest validates every field of a bind except the policy, and lists all broken rules.
func bindRequest(t *session, b tunnel.Bind) (account.BindRequest, error) {
	owner, err := t.bindOwner(b)
	if err != nil {
		return account.BindRequest{}, err
	}
	r := account.BindRequest{
		AccountID: t.accountID, CredentialID: t.credentialID, SessionID: t.id, Binding: b.Binding,
		Name: b.Name, Description: b.Description, Metadata: b.Metadata, UpstreamURL: b.UpstreamURL,
		UpstreamProtocol: b.UpstreamProtocol,
		HostMode:         b.HostMode, PoolingEnabled: b.PoolingEnabled, ResumeSecret: b.ResumeSecret,
		ReplacePoolPolicy: b.ReplacePoolPolicy, Owner: owner,
	}
	if r.Binding == "" {
		r.Binding = account.BindingKubernetes
	}
	if r.HostMode == "" {
		r.HostMode = account.HostPassthrough
	}
	r.URL, err = account.ParseBindingURL(r.Binding, b.URL)
	broken := account.FieldsOf(err)
	for _, f := range account.FieldsOf(r.Validate()) {
		if f.Field != "url" && (f.Field != "binding" || len(broken) == 0) { // reported by the parser already
			broken = append(broken, f)
		}
	}
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	broken = append(broken,
		account.FieldsOf(account.ValidateHTTPOptions(r.URL.Scheme, r.UpstreamProtocol, r.HostMode))...)
	if len(broken) > 0 {
		return account.BindRequest{}, account.InvalidAll(broken)
	}
	return r, nil
}

func checkUpstream(raw string) error {
	if u, err := url.Parse(raw); err != nil || u.User != nil {
		return account.Invalid("upstream_url", account.NotShown, "must be a URL without user name and password")
	}
	return nil
}

// Unbind handles an agent's request to unbind an endpoint.
func (s *Server) Unbind(ctx context.Context, ts *tunnel.Session, endpointID string) error {
	t, err := s.agentSession(ts)
	if err != nil {
		return err
	}
	if !s.hasMember(t, endpointID) { // it may have been bound on another server a moment ago
		s.refreshHoldings(ctx, t)
	}
	held, err := s.unbindTunnel(ctx, t, endpointID)
	if !held {
		err = s.unbindEndpoint(ctx, t, endpointID)
	}
	if err == nil && s.replicated() {
		select {
		case <-s.publishTogether(publicationKind{accountID: t.accountID}, t.id):
		case <-ctx.Done():
		}
	}
	return err
}

func (s *Server) unbindEndpoint(ctx context.Context, t *session, endpointID string) error {
	if !s.hasMember(t, endpointID) {
		return &tunnel.Error{Code: tunnel.CodeInvalid, Detail: string(account.CodeNotFound),
			Msg: fmt.Sprintf("this session does not hold endpoint %q", endpointID)}
	}
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	if err := s.opt.Store.Unbind(ctx, t.accountID, endpointID, t.id); err != nil {
		return s.refusal(err)
	}
	s.removeMember(t, endpointID)
	s.log.Info("endpoint unbound", "endpoint", endpointID, "session", t.id, "account", t.accountID)
	return nil
}

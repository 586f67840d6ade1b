// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// bindLabels starts a labelled tunnel. The tunnel that the resume secret names, of the same
// process's previous session, ends at once: otherwise a connection that died unnoticed would still
// be chosen.
func (s *Server) bindLabels(ctx context.Context, t *session, b tunnel.Bind) (tunnel.Bound, error) {
	if err := validateLabelled(b); err != nil {
		return tunnel.Bound{}, s.refusal(err)
	}
	if problem := checkLabels(s.tokenOf(t), b.Labels); problem != nil {
		return tunnel.Bound{}, s.refusal(problem)
	}
	if err := s.limitBinds(ctx, t.credentialID, b.ResumeSecret != ""); err != nil {
		return tunnel.Bound{}, s.refusal(err)
	}
	started, secret, err := s.startTunnel(ctx, t, b)
	if err != nil {
		return tunnel.Bound{}, s.refusal(err)
	}
	if problem := checkLabels(s.tokenOf(t), b.Labels); problem != nil { // as for endpoints
		return tunnel.Bound{}, s.evictForbidden(t, problem)
	}
	s.log.Info("labelled tunnel started", "tunnel", started.ID, "labels", labelsText(b.Labels), "session", t.id,
		"account",
		t.accountID,
		"resumed", b.ResumeSecret != "")
	return tunnel.Bound{EndpointID: started.ID, ResumeSecret: secret}, nil
}

// Lengths of the BindIDs that are used: at least 130 bits, which cannot be guessed.
const (
	minBindID = 26
	maxBindID = 128
)

// startTunnel records the tunnel, and adds it with the secret with which a later one replaces it.
// As that is made of the BindID, the store recognizes a bind that was sent again.
func (s *Server) startTunnel(
	ctx context.Context, t *session, b tunnel.Bind,
) (started *account.LabelledTunnel, secret string, err error) {
	if n := len(b.BindID); n < minBindID || n > maxBindID { // an agent that sends no bind twice
		b.BindID = rand.Text()
	}
	secret = account.ResumePrefix + b.BindID
	hash := account.HashSecret(secret)
	t.holdings.RLock()
	started, from, err := s.opt.Store.StartTunnel(ctx, account.LabelledTunnel{
		AccountID: t.accountID, TunnelSession: account.Ref{ID: t.id}, Labels: b.Labels,
		Metadata: b.Metadata, ForwardsTo: b.UpstreamURL, UpstreamProtocol: b.UpstreamProtocol,
	}, account.TunnelResume{Secret: b.ResumeSecret, NewHash: hash})
	if err == nil {
		s.addTunnel(t, started, hash, b.ResumeSecret)
	}
	t.holdings.RUnlock()
	if err != nil {
		return nil, "", err
	}
	if b.ResumeSecret != "" { // the replaced tunnel may be one that was read from the store
		s.refreshHoldings(ctx, t)
	}
	s.publishBind(ctx, t, bindEffect{from: from, rebound: b.ResumeSecret != ""})
	return started, secret, nil
}

// validateLabelled validates the bind of a labelled tunnel and lists all broken rules.
func validateLabelled(b tunnel.Bind) error {
	want := account.LabelledTunnel{Labels: b.Labels, Metadata: b.Metadata, ForwardsTo: b.UpstreamURL,
		UpstreamProtocol: b.UpstreamProtocol}
	broken := account.FieldsOf(want.Validate())
	broken = append(broken, account.FieldsOf(checkUpstream(b.UpstreamURL))...)
	for _, f := range []account.FieldError{
		{Field: "url", Value: b.URL}, {Field: "binding", Value: b.Binding}, {Field: "name", Value: b.Name},
		{Field: "description", Value: b.Description},
		{Field: "host_mode", Value: b.HostMode}, {Field: "traffic_policy", Value: b.TrafficPolicy},
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
		return account.InvalidAll(broken)
	}
	return nil
}

func labelTexts(labels map[string]string) []string {
	texts := make([]string, 0, len(labels))
	for key, value := range labels {
		texts = append(texts, key+"="+value)
	}
	return texts
}

func labelsText(labels map[string]string) string {
	return strings.Join(slices.Sorted(slices.Values(labelTexts(labels))), " ")
}

// newTunnel makes a member of a labelled tunnel that the session has started.
func (s *Server) newTunnel(t *session, started *account.LabelledTunnel, resumeHash []byte) *Member {
	h := s.newMember(t, account.Endpoint{
		ID: started.ID, AccountID: t.accountID, Type: account.TypeAgent, Status: account.StatusOnline,
		Metadata: started.Metadata, Region: started.Region,
		UpstreamURL: started.ForwardsTo, UpstreamProtocol: started.UpstreamProtocol,
		HostMode:      account.HostPassthrough,
		TunnelSession: &started.TunnelSession, CreatedAt: started.StartedAt, UpdatedAt: started.StartedAt,
	})
	h.labels, h.resumeHash = maps.Clone(started.Labels), resumeHash
	return h
}

// addTunnel adds a labelled tunnel and drops the one that it resumes.
func (s *Server) addTunnel(t *session, started *account.LabelledTunnel, hash []byte, resume string) {
	h := s.newTunnel(t, started, hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.tunnelByResumeSecret(t.accountID, resume); old != nil {
		s.dropTunnel(old)
	}
	for _, old := range slices.Clone(s.tunnels[t.accountID]) {
		if old.endpoint.ID == h.endpoint.ID { // the bind was sent again
			s.dropTunnel(old)
		}
	}
	h.history = s.history
	s.tunnels[t.accountID] = append(s.tunnels[t.accountID], h)
	s.signalChange()
}

// tunnelByResumeSecret returns the account's labelled tunnel with this resume secret, or nil. mu
// must be held.
func (s *Server) tunnelByResumeSecret(accountID, resume string) *Member {
	if resume == "" {
		return nil
	}
	hash := account.HashSecret(resume)
	for _, h := range s.tunnels[accountID] {
		if bytes.Equal(h.resumeHash, hash) {
			return h
		}
	}
	return nil
}

// dropTunnel removes a labelled tunnel. mu must be held.
func (s *Server) dropTunnel(h *Member) {
	accountID := h.session.accountID
	s.tunnels[accountID] = slices.DeleteFunc(s.tunnels[accountID], func(o *Member) bool { return o == h })
	if len(s.tunnels[accountID]) == 0 {
		delete(s.tunnels, accountID)
	}
	h.cancel()
}

// unbindTunnel ends a labelled tunnel that its session unbinds. found is false when the session has
// no tunnel with this id.
func (s *Server) unbindTunnel(ctx context.Context, t *session, id string) (found bool, err error) {
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	s.mu.Lock()
	i := slices.IndexFunc(s.tunnels[t.accountID], func(h *Member) bool { return h.endpoint.ID == id && h.session == t })
	if i >= 0 {
		s.dropTunnel(s.tunnels[t.accountID][i])
	}
	s.mu.Unlock()
	if i < 0 {
		return false, nil
	}
	if err := s.opt.Store.EndTunnel(ctx, t.accountID, id, t.id); err != nil {
		return true, s.refusal(err)
	}
	s.log.Info("labelled tunnel ended", "tunnel", id, "session", t.id, "account", t.accountID)
	return true, nil
}

// ChooseLabels returns the member that serves a new connection to a tunnel group: of the account's
// labelled tunnels that have all the labels and respond, the one with the fewest connections, then
// the one chosen least recently. The connection counts until Release. The error is
// CodeEndpointOffline when there is none, CodeAgentSilent when none responds. Members in tried are
// left out. Unless tried has any, ChooseLabels waits shortly after the start of this server, when
// agents are reconnecting, and for a member that became unresponsive a moment ago.
//
// The member's Endpoint has the tunnel's id and upstream, and no URL.
func (s *Server) ChooseLabels(
	ctx context.Context, accountID string, labels map[string]string, tried ...*Member,
) (*Member, error) {
	selectMember := func(tried []*Member) selection { return s.selectByLabels(accountID, labels, tried) }
	c, err := selectMember(tried), error(nil)
	if c.member == nil && len(tried) == 0 {
		c, err = c.awaitMember(ctx, min(maxReconnectWait, time.Until(s.started.Add(reconnectWindow))), selectMember)
	}
	return c.labelled(labels, err)
}

// ChooseLabelsNow is ChooseLabels without waiting.
func (s *Server) ChooseLabelsNow(accountID string, labels map[string]string, tried ...*Member) (*Member, error) {
	return s.selectByLabels(accountID, labels, tried).labelled(labels, nil)
}

// labelled returns the member that has the labels, or why there is none.
func (c selection) labelled(labels map[string]string, err error) (*Member, error) {
	switch {
	case c.member != nil:
		return c.member, nil
	case c.unresponsive.IsZero():
		return nil, &account.Error{
			Code: account.CodeEndpointOffline, Cause: err,
			Msg: "no tunnel with the labels " + labelsText(labels) + " is online",
		}
	}
	return nil, errUnresponsive("no tunnel with the labels " + labelsText(labels) + " responds")
}

func (s *Server) selectByLabels(accountID string, labels map[string]string, tried []*Member) selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.selectMember(s.tunnels[accountID], labels, tried)
}

// OnlineLabels reports whether ChooseLabels would find a tunnel at once.
func (s *Server) OnlineLabels(accountID string, labels map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tunnels[accountID], func(h *Member) bool {
		if !account.HasLabels(h.labels, labels) || !h.session.tun.CanOpen() {
			return false
		}
		_, unresponsive := h.session.tun.Unresponsive()
		return !unresponsive
	})
}

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

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// bindLabels starts a labelled tunnel. The tunnel that the resume secret names, of the same
// process's previous session, ends at once: otherwise a connection that died unnoticed would still
// be chosen.
func (b *binder) bindLabels(ctx context.Context, t *session, want tunnel.Bind) (tunnel.Bound, error) {
	req, err := tunnelRequest(t, want)
	if err != nil {
		return tunnel.Bound{}, err
	}
	if problem := checkLabels(b.registry.tokenOf(t), want.Labels); problem != nil {
		return tunnel.Bound{}, problem
	}
	if err := b.limits.limit(ctx, t.credentialID, want.ResumeSecret != ""); err != nil {
		return tunnel.Bound{}, err
	}
	started, secret, err := b.startTunnel(ctx, t, req, want)
	if err != nil {
		return tunnel.Bound{}, err
	}
	if problem := checkLabels(b.registry.tokenOf(t), want.Labels); problem != nil { // as for endpoints
		return tunnel.Bound{}, b.ender.evictForbidden(t, problem)
	}
	b.log.Info("labelled tunnel started", "tunnel", started.ID, "labels", labelsText(want.Labels), "session", t.id,
		"account", t.accountID, "resumed", want.ResumeSecret != "")
	return tunnel.Bound{EndpointID: started.ID, ResumeSecret: secret}, nil
}

// Lengths of the BindIDs that are used: at least 130 bits, which cannot be guessed.
const (
	minBindID = 26
	maxBindID = 128
)

// startTunnel records the tunnel, and adds it with the secret with which a later one replaces it.
// As that is made of the BindID, the store recognizes a bind that was sent again.
func (b *binder) startTunnel(
	ctx context.Context, t *session, req account.LabelledTunnel, want tunnel.Bind,
) (started *account.LabelledTunnel, secret string, err error) {
	if n := len(want.BindID); n < minBindID || n > maxBindID { // an agent that sends no bind twice
		want.BindID = rand.Text()
	}
	secret = account.ResumePrefix + want.BindID
	hash := account.HashSecret(secret)
	t.holdings.RLock()
	started, from, err := b.store.StartTunnel(ctx, req, account.TunnelResume{Secret: want.ResumeSecret, NewHash: hash})
	if err == nil {
		b.registry.members.addTunnel(t, started, hash, want.ResumeSecret)
	}
	t.holdings.RUnlock()
	if err != nil {
		return nil, "", err
	}
	if want.ResumeSecret != "" { // the replaced tunnel may be one that was read from the store
		b.holdings.refresh(ctx, t)
	}
	b.publishBind(ctx, t, bindEffect{from: from, rebound: want.ResumeSecret != ""})
	return started, secret, nil
}

// unbindTunnel ends a labelled tunnel that its session unbinds. found is false when the session has
// no tunnel with this id.
func (b *binder) unbindTunnel(ctx context.Context, t *session, id string) (found bool, err error) {
	t.holdings.RLock()
	defer t.holdings.RUnlock()
	if !b.registry.members.removeTunnel(t, id) {
		return false, nil
	}
	if err := b.store.EndTunnel(ctx, t.accountID, id, t.id); err != nil {
		return true, refusal(b.log, err)
	}
	b.log.Info("labelled tunnel ended", "tunnel", id, "session", t.id, "account", t.accountID)
	return true, nil
}

// newTunnel makes a member of a labelled tunnel that the session has started.
func (m *members) newTunnel(t *session, started *account.LabelledTunnel, resumeHash []byte) *Member {
	h := m.newMember(t, started.Endpoint())
	h.labels, h.resumeHash = maps.Clone(started.Labels), resumeHash
	return h
}

// addTunnel adds a labelled tunnel and drops the one that it resumes.
func (m *members) addTunnel(t *session, started *account.LabelledTunnel, hash []byte, resume string) {
	h := m.newTunnel(t, started, hash)
	m.mu.Lock()
	defer m.mu.Unlock()
	resumed := account.HashSecret(resume)
	for _, old := range slices.Clone(m.tunnels[t.accountID]) {
		sentAgain := old.endpoint.ID == h.endpoint.ID
		if sentAgain || resume != "" && bytes.Equal(old.resumeHash, resumed) {
			m.drop(old)
		}
	}
	h.history = m.history
	m.tunnels[t.accountID] = append(m.tunnels[t.accountID], h)
	m.signalChange()
}

// removeTunnel removes the session's labelled tunnel with this id; false = there was none.
func (m *members) removeTunnel(t *session, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.tunnels[t.accountID] {
		if h.endpoint.ID == id && h.session == t {
			m.drop(h)
			return true
		}
	}
	return false
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

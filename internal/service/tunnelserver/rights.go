// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// rights compares sessions with what admits them, credentials, operators and granted domains, and
// ends those that are not admitted any more.
type rights struct {
	registry    *registry
	ender       *ender
	store       rightsStore
	checkPolicy account.PolicyChecker // nil if traffic policies are not compiled here
	log         *slog.Logger

	comparing sync.Mutex // held by comparisons with the store, so that an older one is not applied last
}

// rightsStore has what admits sessions, now.
type rightsStore interface {
	credentialStore
	// MarkOperatorSeen records that the operator has a forwarder connected. It does not wait for a
	// write.
	MarkOperatorSeen(id string)
	// GrantedHosts returns which hosts of the public binding the account is granted now.
	GrantedHosts(ctx context.Context, accountID string, hosts []string) (map[string]bool, error)
}

// ApplyAccess ends the account's sessions whose authtoken, operator or domain no longer admits them;
// those of all accounts if accountID is "". It returns when no new stream reaches them.
func (r *rights) ApplyAccess(ctx context.Context, accountID string) error {
	r.comparing.Lock()
	defer r.comparing.Unlock()
	return errors.Join(r.endRevoked(ctx, accountID), r.endUngranted(ctx, accountID))
}

// endRevoked ends the sessions whose credential was deleted, has expired or no longer admits their
// endpoints, and those of deleted operators; of one account unless it is "".
func (r *rights) endRevoked(ctx context.Context, accountID string) error {
	uses, distinct := r.registry.credentialUses(accountID)
	if len(uses) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	tokens, err := r.store.LiveTunnelCredentials(ctx, distinct)
	if err != nil {
		return err
	}
	operators := make(map[string]bool) // by account and id
	for t, use := range uses {
		token := tokens[use]
		if token == nil {
			r.endUnauthenticated(t, use)
			continue
		}
		if problem := r.updateToken(t, token); problem != nil {
			r.log.Info("session ended: its credential's rules have changed", "session", t.id, "credential",
				t.credentialID)
			_ = r.ender.evictForbidden(t, problem)
			continue
		}
		if t.operatorID == "" {
			continue
		}
		gone, err := r.operatorGone(ctx, operators, t)
		if err != nil {
			return err
		}
		if gone {
			r.log.Info("session ended: its operator was deleted", "session", t.id, "operator", t.operatorID)
			e := errUnregistered(t.operatorID)
			r.ender.evict(t, e.Code, e.Msg, account.SessionEnd{CausedByID: t.operatorID})
		}
	}
	return nil
}

// endUnauthenticated ends a session whose credential is not valid any more, unless it was renewed
// meanwhile. The client of a token that was not renewed in time may begin a new session.
func (r *rights) endUnauthenticated(t *session, use account.CredentialUse) {
	if r.registry.tokenOf(t).Use() != use {
		return
	}
	code, msg := tunnel.CodeTokenRevoked, revokedMessage(t.credentialID)
	if ends := use.Token.Ends(); !ends.IsZero() && !time.Now().Before(ends) {
		code, msg = tunnel.CodeUnavailable, "the ServiceAccount token of the session has expired, and was not renewed"
	}
	r.log.Info("session ended: its credential was deleted or has expired", "session", t.id, "credential",
		t.credentialID)
	r.ender.evict(t, code, msg, account.SessionEnd{CausedByID: t.credentialID})
}

// updateToken gives the session its current credential. It returns an error when the rules no
// longer admit an endpoint or operator of the session.
func (r *rights) updateToken(t *session, token *account.TunnelCredential) *account.Error {
	was, changed := r.registry.setRules(t, token)
	switch {
	case !changed:
		return nil
	case was.ClusterUID != token.ClusterUID:
		return account.ErrOtherCluster(token.ID, cmp.Or(token.ClusterUID, "none"), was.ClusterUID)
	}
	return r.problemOf(t)
}

// problemOf returns an error when the credential's rules do not admit what the session has bound,
// what the traffic policies of that forward to, or its operator.
func (r *rights) problemOf(t *session) *account.Error {
	binds := r.registry.bindsOf(t)
	if problem := binds.problem(); problem != nil {
		return problem
	}
	return binds.policyProblem(r.checkPolicy)
}

// operatorGone reports whether the session's operator was deleted. known caches the answers of one
// round.
func (r *rights) operatorGone(ctx context.Context, known map[string]bool, t *session) (bool, error) {
	key := t.accountID + " " + t.operatorID
	if gone, ok := known[key]; ok {
		return gone, nil
	}
	o, err := r.store.Operator(ctx, t.accountID, t.operatorID)
	gone := account.CodeOf(err) == account.CodeNotFound
	if err != nil && !gone {
		return false, err
	}
	if !gone && time.Since(o.LastSeenAt) > operatorSeenInterval {
		r.store.MarkOperatorSeen(o.ID)
	}
	known[key] = gone
	return gone, nil
}

// endUngranted ends the sessions that have bound a public endpoint whose domain is no longer
// granted, and with them its live connections. The agent reconnects with its other endpoints, and
// the bind of this one is refused until the domain is granted again. onlyID restricts it to an
// account, unless it is "".
func (r *rights) endUngranted(ctx context.Context, onlyID string) error {
	public := r.registry.publicMembers(onlyID)
	if len(public) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for accountID, members := range public {
		hosts := make([]string, len(members))
		for i, h := range members {
			hosts[i] = h.endpoint.Host
		}
		granted, err := r.store.GrantedHosts(ctx, accountID, hosts)
		if err != nil {
			return err
		}
		for _, h := range members {
			if granted[h.endpoint.Host] || r.registry.isStopping(h.session) {
				continue
			}
			r.log.Info("session ended: the domain of its endpoint is no longer granted", "session", h.session.id,
				"account", accountID, "url", h.endpoint.URL)
			r.ender.evict(h.session, tunnel.CodeUnavailable,
				"the domain of "+h.endpoint.URL+" is no longer granted to this account", account.SessionEnd{})
		}
	}
	return nil
}

// revokedMessage is the message to a client whose credential is not valid any more.
func revokedMessage(credentialID string) string {
	switch {
	case account.CredentialUse{ID: credentialID}.IsSubject():
		return "the ServiceAccount, its UID, or the key that has signed its token is no longer trusted: see " +
			"fairlead api clusters list"
	case strings.HasPrefix(credentialID, account.PrefixAPIKey+"-"):
		return "the API key was deleted or has expired"
	}
	return "the authtoken was deleted or has expired"
}

// Renew implements tunnel.Handler for sessions that began with a ServiceAccount's token. A token
// of another subject ends the session; after any other refusal it ends when its last token expires.
func (r *rights) Renew(ctx context.Context, ts *tunnel.Session, token string) (time.Time, error) {
	t := r.registry.session(ts.ID())
	if t == nil {
		return time.Time{}, errUnknownSession()
	}
	if !r.registry.tokenOf(t).Use().IsSubject() {
		return time.Time{}, &tunnel.Error{Code: tunnel.CodeInvalid,
			Msg: "the session began with no ServiceAccount token: there is nothing to renew"}
	}
	fresh, err := r.store.TunnelCredential(ctx, token)
	if err != nil {
		return time.Time{}, refusal(r.log, err)
	}
	if fresh.ID != t.credentialID || fresh.AccountID != t.accountID {
		problem := account.Errorf(account.CodeScope,
			"the session began with a token of subject %s, and this one is of %s", t.credentialID, fresh)
		r.log.Info("session ended: it was renewed with the token of another subject", "session", t.id, "credential",
			t.credentialID, "presented", fresh.ID)
		return time.Time{}, r.ender.evictForbidden(t, problem)
	}
	return time.Unix(r.registry.renew(t, fresh.ServiceAccount).Expires, 0).UTC(), nil
}

// problem returns an error when the credential does not admit the operator of the session, a URL that
// it calls, or what it has bound.
func (b *sessionBinds) problem() *account.Error {
	if b.operatorID != "" && !b.token.ACL.MayConnect(b.operatorID) {
		return errNoConnectRule(b.token, b.operatorID)
	}
	for _, url := range b.urls {
		if !b.token.ACL.MayCall(url) {
			return errMayNotCall(b.token, url)
		}
	}
	for _, h := range b.members {
		var problem *account.Error
		if len(h.labels) > 0 {
			problem = checkLabels(b.token, h.labels)
		} else {
			problem = checkHolder(b.token, h.endpoint.Bindings[0], h.endpoint.URL, h.endpoint.Owner)
		}
		if problem != nil {
			return problem
		}
	}
	return nil
}

// policyProblem returns an error when the credential does not admit what the traffic policy of an
// endpoint forwards to. A nil compile finds none.
func (b *sessionBinds) policyProblem(compile account.PolicyChecker) *account.Error {
	if !b.token.IsAPIKey || compile == nil {
		return nil
	}
	for _, h := range b.members {
		ep := h.Endpoint()
		if ep.TrafficPolicy == "" {
			continue
		}
		facts, err := compile(ep.TrafficPolicy, ep.Scheme, ep.Bindings[0])
		if err != nil { // it was accepted, and is not compiled here either
			continue
		}
		if problem := checkPolicy(b.token, facts); problem != nil {
			return problem
		}
	}
	return nil
}

// checkHolder returns an error unless the credential admits the endpoint with this binding, URL and
// owner. The URL of a port of an exported Service follows from the owner and its cluster, so rules
// about URLs do not apply to it.
func checkHolder(token *account.TunnelCredential, binding, url string, owner *account.Owner) *account.Error {
	exported := binding == account.BindingClusterset
	switch {
	case exported && !token.IsAPIKey:
		return errNoOwner(token.ID)
	case token.IsAPIKey && owner == nil:
		return account.Errorf(account.CodeScope,
			"%s has the scope exporter, and binds only endpoints of objects in its cluster: the bind of %s has no "+
				"owner; agents need an authtoken (%s…)", token, url, account.AuthtokenPrefix)
	case token.IsAPIKey && owner.Cluster != token.ClusterUID:
		return account.ErrOtherCluster(token.ID, token.ClusterUID, owner.Cluster)
	case token.IsAPIKey && !token.ACL.MayExport(owner.Namespace, owner.Name):
		return account.ErrNoRule(token.String(), "export", owner.Namespace+"/"+owner.Name)
	case !exported && !token.ACL.MayBind(url):
		return account.ErrNoRule(token.String(), "bind", url)
	}
	return nil
}

// checkLabels returns an error unless the credential admits labelled tunnels with the labels.
func checkLabels(token *account.TunnelCredential, labels map[string]string) *account.Error {
	switch {
	case token.IsAPIKey:
		return account.Errorf(account.CodeScope,
			"%s has the scope exporter, and starts no labelled tunnels; agents need an authtoken (%s…)", token,
			account.AuthtokenPrefix)
	case !token.ACL.MayBindLabels(labels):
		return account.Errorf(account.CodeScope,
			"%s has no bind rules that admit all the labels %s; it needs one such as bind:%s for each",
			token, labelsText(labels), slices.Min(labelTexts(labels)))
	}
	return nil
}

// checkPolicy returns an error unless the credential admits what the traffic policy forwards to.
// Agents with authtokens may forward to all of the account.
func checkPolicy(token *account.TunnelCredential, facts account.PolicyFacts) *account.Error {
	if !token.IsAPIKey {
		return nil
	}
	return token.ACL.CheckForwards(token.String(), facts, "")
}

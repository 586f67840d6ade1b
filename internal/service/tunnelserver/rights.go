// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// authenticateExporter checks the hello of a client whose token is an API key, or that of an
// exporter's ServiceAccount: an agent in the cluster that the key belongs to. A key that belongs to
// none belongs to this one from now on.
func (s *Server) authenticateExporter(ctx context.Context, key *account.TunnelCredential, h tunnel.Hello) error {
	switch {
	case h.Role != tunnel.RoleAgent:
		return account.Errorf(account.CodeScope,
			"%s has the scope exporter, and binds endpoints only; a forwarder needs an authtoken with a connect "+
				"rule (fairlead-server authtoken create --connect '*'), or a ServiceAccount of the role forwarder", key)
	case h.ClusterUID == "":
		return account.Errorf(account.CodeScope,
			"%s has the scope exporter, and this agent names no cluster, as fairlead-operator exporter does; "+
				"give the agent an authtoken (%s…)", key, account.AuthtokenPrefix)
	}
	if err := account.ValidateClusterUID("cluster_uid", h.ClusterUID); err != nil {
		return err
	}
	switch key.ClusterUID {
	case h.ClusterUID:
		return nil
	case "":
		if err := s.opt.Store.PinCluster(ctx, key.AccountID, key.ID, h.ClusterUID); err != nil {
			return err
		}
		key.ClusterUID = h.ClusterUID
		return nil
	}
	return account.ErrOtherCluster(key.ID, key.ClusterUID, h.ClusterUID)
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
				"owner; "+
				"agents need an authtoken (%s…)", token, url, account.AuthtokenPrefix)
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

// forbidden returns an error when the credential's rules do not admit what the session has bound,
// or its operator.
func (s *Server) forbidden(t *session, token *account.TunnelCredential) *account.Error {
	s.mu.Lock()
	problem := s.forbiddenLocked(t)
	s.mu.Unlock()
	if problem != nil {
		return problem
	}
	return s.forbiddenPolicy(t, token)
}

// forbiddenPolicy returns an error when the rules do not admit what the traffic policy of an
// endpoint of the session forwards to.
func (s *Server) forbiddenPolicy(t *session, token *account.TunnelCredential) *account.Error {
	if !token.IsAPIKey || s.opt.CheckPolicy == nil {
		return nil
	}
	for _, ep := range s.endpointsOf(t) {
		if ep.TrafficPolicy == "" {
			continue
		}
		facts, err := s.opt.CheckPolicy(ep.TrafficPolicy, ep.Scheme, ep.Bindings[0])
		if err != nil { // it was accepted, and is not compiled here either
			continue
		}
		if problem := checkPolicy(token, facts); problem != nil {
			return problem
		}
	}
	return nil
}

// endpointsOf returns the endpoints that the session has bound.
func (s *Server) endpointsOf(t *session) (all []*account.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.members {
		if h.session == t {
			all = append(all, h.Endpoint())
		}
	}
	return all
}

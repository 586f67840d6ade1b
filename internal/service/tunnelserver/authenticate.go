// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// authenticator finds the credential that opens a session, and the session that a connection joins.
type authenticator struct {
	store credentialStore
	legs  account.SessionLegs // nil for a server that is alone, where nothing joins
}

// credentialStore has what admits sessions.
type credentialStore interface {
	account.TunnelAuthenticator
	Operator(ctx context.Context, accountID, id string) (*account.Operator, error)
}

// authenticate returns a new session for the hello, with an id of its own.
func (a *authenticator) authenticate(ctx context.Context, h tunnel.Hello) (*session, error) {
	token, err := a.store.TunnelCredential(ctx, h.Token)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &session{id: account.NewID(account.PrefixTunnelSession, now), accountID: token.AccountID,
		credentialID: token.ID, token: token, hello: h, accepted: now}
	t.hello.Token, t.hello.JoinSecret = "", ""
	if err := validateHello(h); err != nil {
		return nil, err
	}
	switch {
	case token.IsAPIKey:
		if err := a.authenticateExporter(ctx, token, h); err != nil {
			return nil, err
		}
		t.clusterUID = token.ClusterUID
	case h.Role == tunnel.RoleAgent:
		if !token.ACL.HasVerb("bind") {
			return nil, account.Errorf(account.CodeScope,
				"%s has no bind rule: an agent needs one, such as bind:*", token)
		}
	case h.Role == tunnel.RoleForwarder && h.OperatorID == "" && len(h.URLs) > 0:
		if err := checkURLs(token, h.URLs); err != nil {
			return nil, err
		}
		t.urls = h.URLs
	case h.Role == tunnel.RoleForwarder:
		o, err := a.findOperator(ctx, token, h.OperatorID)
		if err != nil {
			return nil, err
		}
		t.operatorID, t.cluster = h.OperatorID, o.Deployment.ClusterName
	default:
		return nil, account.Invalid("role", string(h.Role), "must be agent or forwarder")
	}
	return t, nil
}

// validateHello refuses texts that must not reach the store and terminals.
func validateHello(h tunnel.Hello) error {
	probe := account.TunnelSession{ID: account.NewID(account.PrefixTunnelSession, time.Time{}),
		AgentVersion: h.ClientVersion, OS: h.OS, InstanceID: h.InstanceID, Metadata: h.Metadata}
	return probe.Validate()
}

// findOperator returns the operator that a forwarder names, if its token may connect for it.
func (a *authenticator) findOperator(
	ctx context.Context, token *account.TunnelCredential, operatorID string,
) (*account.Operator, error) {
	if !account.ValidID(account.PrefixOperator, operatorID) {
		return nil, account.Invalid("operator_id", account.Shorten(operatorID),
			"a forwarder names the operator that it belongs to, by its id op-…")
	}
	if !token.ACL.MayConnect(operatorID) {
		return nil, errNoConnectRule(token, operatorID)
	}
	o, err := a.store.Operator(ctx, token.AccountID, operatorID)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, errUnregistered(operatorID)
	}
	return o, err
}

// checkURLs returns an error unless the token may call each of the endpoints.
func checkURLs(token *account.TunnelCredential, urls []string) error {
	if len(urls) > tunnel.MaxURLs {
		return account.Invalid("urls", strconv.Itoa(len(urls)), fmt.Sprintf("must be at most %d URLs", tunnel.MaxURLs))
	}
	for _, url := range urls {
		u, err := account.ParseEndpointURL(url)
		switch {
		case err != nil:
			return err
		case u.String() != url:
			return account.Invalid("urls", account.Shorten(url), "must be in its normal form, "+u.String())
		case !token.ACL.MayCall(url):
			return errMayNotCall(token, url)
		}
	}
	return nil
}

func errMayNotCall(token *account.TunnelCredential, url string) *account.Error {
	return account.Errorf(account.CodeScope,
		"%s has no connect rule for %s: make one with `fairlead-server authtoken create --connect %s`", token, url, url)
}

func errNoConnectRule(token *account.TunnelCredential, operatorID string) *account.Error {
	remedy := "make one with `fairlead-server authtoken create --connect '*'`"
	if token.Use().IsSubject() {
		remedy = "set its acl to connect:* in the subjects of its cluster"
	}
	return account.Errorf(account.CodeScope, "%s has no connect rule for operator %s: %s", token, operatorID, remedy)
}

// errUnregistered is not final: the operator's manager registers it again.
func errUnregistered(operatorID string) *tunnel.Error {
	return &tunnel.Error{Code: tunnel.CodeUnavailable, Detail: string(account.CodeNotFound),
		Msg: "operator " + operatorID + " is not registered in this account; its manager has to register first"}
}

// authenticateExporter checks the hello of a client whose token is an API key, or that of an
// exporter's ServiceAccount: an agent in the cluster that the key belongs to. A key that belongs to
// none belongs to this one from now on.
func (a *authenticator) authenticateExporter(ctx context.Context, key *account.TunnelCredential, h tunnel.Hello) error {
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
		if err := a.store.PinCluster(ctx, key.AccountID, key.ID, h.ClusterUID); err != nil {
			return err
		}
		key.ClusterUID = h.ClusterUID
		return nil
	}
	return account.ErrOtherCluster(key.ID, key.ClusterUID, h.ClusterUID)
}

// authenticateJoin returns the session that the hello names. With an error, it also returns the
// session if the store has added a leg here to it.
func (a *authenticator) authenticateJoin(ctx context.Context, h tunnel.Hello) (*session, error) {
	switch {
	case h.Role == tunnel.RoleAgent:
		return a.joinAgent(ctx, h)
	case h.Token == "": // a client that knows one server only
		return nil, errUnknownSession()
	}
	return a.authenticate(ctx, h)
}

func errUnknownSession() *tunnel.Error {
	return &tunnel.Error{Code: tunnel.CodeUnknownSession, Msg: "the session has ended: begin a new one"}
}

// joinAgent returns the session of the row with the hello's join secret, whose credential must be
// valid still. A hello with a token must have one of the same account, and that of a ServiceAccount
// one of the same ServiceAccount. It returns the session with an error, too, once it is joined.
func (a *authenticator) joinAgent(ctx context.Context, h tunnel.Hello) (*session, error) {
	var accountID string
	var presented account.CredentialUse
	if h.Token != "" {
		token, err := a.store.TunnelCredential(ctx, h.Token)
		if err != nil {
			return nil, err
		}
		accountID, presented = token.AccountID, token.Use()
	}
	hash := sha256.Sum256([]byte(h.JoinSecret))
	row, err := a.legs.JoinSession(ctx, h.SessionID, hash[:])
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, errUnknownSession()
	}
	if err != nil {
		return nil, err
	}
	t := &session{id: row.ID, accountID: row.AccountID, credentialID: row.Credential.ID, joined: true,
		accepted: time.Now(), hello: tunnel.Hello{Role: tunnel.RoleAgent, SessionID: row.ID,
			ClientVersion: row.AgentVersion, OS: row.OS, InstanceID: row.InstanceID, Metadata: row.Metadata}}
	use := account.CredentialUse{ID: t.credentialID}
	if use.IsSubject() && presented.ID == use.ID {
		use = presented
	}
	tokens, err := a.store.LiveTunnelCredentials(ctx, []account.CredentialUse{use})
	t.token = tokens[use]
	switch {
	case err != nil:
	case t.token == nil && use.IsSubject() && presented.ID != use.ID:
		err = &tunnel.Error{Code: tunnel.CodeForbidden,
			Msg: "the session is that of another ServiceAccount, or its token was not presented"}
	case t.token == nil:
		err = &tunnel.Error{Code: tunnel.CodeTokenRevoked, Msg: revokedMessage(t.credentialID)}
	case accountID != "" && accountID != t.accountID:
		err = &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "the token is of another account than the session"}
	default:
		t.clusterUID = t.token.ClusterUID
	}
	return t, err
}

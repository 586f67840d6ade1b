// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TunnelCredential implements account.TunnelAuthenticator.
func (s *Store) TunnelCredential(ctx context.Context, secret string) (*account.TunnelCredential, error) {
	if !strings.HasPrefix(secret, apiKeys.prefix) {
		token, err := authtokens.bySecret(ctx, s, secret, apiKeys.noun, apiKeys.prefix)
		if err != nil {
			return nil, err
		}
		return token.TunnelCredential(), nil
	}
	key, err := s.APIKeyBySecret(ctx, secret)
	if err != nil {
		return nil, err
	}
	return key.TunnelCredential()
}

// LiveTunnelCredentials implements account.TunnelAuthenticator.
func (s *Store) LiveTunnelCredentials(
	ctx context.Context, uses []account.CredentialUse,
) (map[account.CredentialUse]*account.TunnelCredential, error) {
	live := make(map[account.CredentialUse]*account.TunnelCredential, len(uses))
	ids, subjects := splitUses(uses)
	isKey := func(id string) bool { return strings.HasPrefix(id, account.PrefixAPIKey+"-") }
	tokens := slices.DeleteFunc(slices.Clone(ids), isKey)
	keys := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !isKey(id) })
	err := s.read(ctx, "looking for live credentials of tunnel sessions", func(t *tx) error {
		add := func(c *account.TunnelCredential, err error) {
			if err == nil {
				live[c.Use()] = c
			}
		}
		err := eachLive(t, &authtokens, tokens, func(a *account.Authtoken) { add(a.TunnelCredential(), nil) })
		if err != nil {
			return err
		}
		if err := eachLive(t, &apiKeys, keys, func(k *account.APIKey) { add(k.TunnelCredential()) }); err != nil {
			return err
		}
		return t.eachLiveSubject(subjects,
			func(c *account.Cluster, subject *account.ClusterSubject, use account.CredentialUse) {
				add(c.TunnelCredential(subject, use.Token))
			})
	})
	if err != nil {
		return nil, err
	}
	return live, nil
}

// eachLive calls do with those of the credentials that exist and have not expired.
func eachLive[T any](t *tx, ct *credentialTable[T], ids []string, do func(*T)) error {
	return t.EachIn(ids, micros(t.now), func(from scanner) error {
		found, err := ct.scan(from)
		if err == nil {
			do(&found)
		}
		return err
	}, `SELECT `+ct.names+` FROM `+ct.name+` WHERE `+notExpired+` AND id IN IDS`)
}

// PinCluster implements account.ClusterPinner. Transactions that write follow one another, so of
// two clusters one finds the key of the other.
func (s *Store) PinCluster(ctx context.Context, accountID, keyID, clusterUID string) error {
	if err := account.ValidateClusterUID("cluster_uid", clusterUID); err != nil {
		return err
	}
	return s.write(ctx, "pinning the cluster of a credential", func(t *tx) error {
		if (account.CredentialUse{ID: keyID}).IsSubject() {
			return t.pinSubject(accountID, keyID, clusterUID)
		}
		key, err := apiKeys.get(t, accountID, keyID)
		if err != nil {
			return err
		}
		if _, err := key.TunnelCredential(); err != nil {
			return err
		}
		switch key.ClusterUID {
		case clusterUID:
			return nil
		case "":
			key.ClusterUID = clusterUID
			apiKeys.audit(t, account.Caller{AccountID: accountID, PrincipalID: keyID}, apiKeys.updated, key)
			return apiKeys.update(t, key)
		}
		return account.ErrOtherCluster(keyID, key.ClusterUID, clusterUID)
	})
}

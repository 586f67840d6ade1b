// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// Credentials are the API keys and authtokens, and what else may open a tunnel session.
type Credentials struct {
	db                 *database
	accounts           *Accounts
	clusters           *Clusters
	uses               *lastUsedTimes
	maxKeys, maxTokens int // maxKeys and maxTokens are per account.
}

// credentialTable is a table of objects that are found by the hash of a secret.
type credentialTable[T any] struct {
	table[T]
	prefix    string // beginning of all secrets
	expiresAt func(v *T) *time.Time
	recordUse string // the statement that writes last_used_at
}

// create writes a credential with its secret and an audit event.
func (ct *credentialTable[T]) create(t *tx, by account.Caller, v *T, secret string) error {
	ct.audit(t, by, ct.created, v)
	hash := account.HashSecret(secret)
	return ct.insert(t, v, sqldb.Fixed("secret_hash", &hash))
}

// bySecret returns the credential with the secret. other is the table of the other kind, which the
// error names for one of its secrets.
func (ct *credentialTable[T]) bySecret(
	ctx context.Context, cr *Credentials, secret, otherNoun, otherPrefix string,
) (*T, error) {
	switch {
	case secret == "":
		return nil, account.Errorf(account.CodeNoCredential, "an %s is required", ct.noun)
	case strings.HasPrefix(secret, otherPrefix):
		return nil, account.Errorf(account.CodeWrongKind, "this is an %s (%s…); an %s (%s…) is required here",
			otherNoun, otherPrefix, ct.noun, ct.prefix)
	}
	found, err := result(ctx, cr.db, "looking for "+ct.noun, func(t *tx) (*T, error) {
		found, err := ct.first(t, `secret_hash = $1`, account.HashSecret(secret))
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			return nil, account.Errorf(account.CodeUnknownCredential, "the %s is not known; it may have been deleted",
				ct.noun)
		}
		if expires := ct.expiresAt(found); expires != nil && !expires.After(t.now) {
			return nil, account.Errorf(account.CodeExpired, "the %s expired at %s", ct.noun,
				expires.Format(time.RFC3339))
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	cr.uses.record(ct.recordUse, ct.id(found))
	return found, nil
}

// allOf returns all credentials of an account, newest first; CodeNotFound for an unknown account.
func (ct *credentialTable[T]) allOf(ctx context.Context, cr *Credentials, accountID string) ([]T, error) {
	return result(ctx, cr.db, "listing "+ct.noun+"s", func(t *tx) ([]T, error) {
		if err := cr.accounts.exists(t, accountID); err != nil {
			return nil, err
		}
		return ct.all(t, `account_id = $1 ORDER BY id DESC`, accountID)
	})
}

// notExpired selects credentials by their expiry; $1 is the time.
const notExpired = `(expires_at = 0 OR expires_at > $1)`

// LiveCredentials implements account.Authenticator.
func (cr *Credentials) LiveCredentials(
	ctx context.Context, uses []account.CredentialUse,
) (map[account.CredentialUse]bool, error) {
	ids, subjects := splitUses(uses)
	return result(ctx, cr.db, "looking for live credentials", func(t *tx) (map[account.CredentialUse]bool, error) {
		live := make(map[account.CredentialUse]bool, len(uses))
		err := t.EachIn(ids, sqldb.Micros(t.now), func(from scanner) error {
			var use account.CredentialUse
			err := from.Scan(&use.ID)
			live[use] = true
			return err
		}, `SELECT id FROM api_keys WHERE `+notExpired+` AND id IN IDS
			UNION ALL SELECT id FROM authtokens WHERE `+notExpired+` AND id IN IDS`)
		if err != nil {
			return nil, err
		}
		return live, cr.clusters.eachLiveSubject(t, subjects,
			func(_ *account.Cluster, _ *account.ClusterSubject, use account.CredentialUse) { live[use] = true })
	})
}

const (
	newKeyRules = `k.acl, k.cluster_uid`
	oldKeyRules = `'[]', ''` // for schemas without these columns
)

// valid reads the API keys and authtokens of all accounts that have not expired.
// keyRules are the columns of the keys' rules and clusters.
func (cr *Credentials) valid(t *tx, keyRules string) (all []Credential, err error) {
	err = t.Each(func(from scanner) error {
		var c Credential
		var rules, acl, clusterUID string
		if err := from.Scan(&c.Kind, &c.ID, &c.Account, &c.Description, &rules, &acl, &clusterUID,
			sqldb.TimeField(&c.CreatedAt), sqldb.OptionalTimeField(&c.ExpiresAt)); err != nil {
			return err
		}
		var more []string
		if err := errors.Join(json.Unmarshal([]byte(rules), &c.Rules), json.Unmarshal([]byte(acl), &more)); err != nil {
			return fmt.Errorf("reading the rules of %s: %w", c.ID, err)
		}
		if c.Rules = append(c.Rules, more...); clusterUID != "" {
			c.Rules = append(c.Rules, "cluster:"+clusterUID)
		}
		all = append(all, c)
		return nil
	}, `SELECT 'api-key' AS kind, k.id, a.name, k.description, k.scopes, `+keyRules+`, k.created_at, k.expires_at
			FROM api_keys AS k JOIN accounts AS a ON a.id = k.account_id WHERE k.expires_at = 0 OR k.expires_at > $1
		UNION ALL SELECT 'authtoken', k.id, a.name, k.description, k.acl, '[]', '', k.created_at, k.expires_at
			FROM authtokens AS k JOIN accounts AS a ON a.id = k.account_id WHERE k.expires_at = 0 OR k.expires_at > $1
		ORDER BY 1, 2`, sqldb.Micros(t.now))
	return all, err
}

// TunnelCredential implements account.TunnelAuthenticator.
func (cr *Credentials) TunnelCredential(ctx context.Context, secret string) (*account.TunnelCredential, error) {
	if !strings.HasPrefix(secret, apiKeys.prefix) {
		token, err := authtokens.bySecret(ctx, cr, secret, apiKeys.noun, apiKeys.prefix)
		if err != nil {
			return nil, err
		}
		return token.TunnelCredential(), nil
	}
	key, err := cr.APIKeyBySecret(ctx, secret)
	if err != nil {
		return nil, err
	}
	return key.TunnelCredential()
}

// LiveTunnelCredentials implements account.TunnelAuthenticator.
func (cr *Credentials) LiveTunnelCredentials(
	ctx context.Context, uses []account.CredentialUse,
) (map[account.CredentialUse]*account.TunnelCredential, error) {
	ids, subjects := splitUses(uses)
	isKey := func(id string) bool { return strings.HasPrefix(id, account.PrefixAPIKey+"-") }
	tokens := slices.DeleteFunc(slices.Clone(ids), isKey)
	keys := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !isKey(id) })
	type found = map[account.CredentialUse]*account.TunnelCredential
	return result(ctx, cr.db, "looking for live credentials of tunnel sessions", func(t *tx) (found, error) {
		live := make(found, len(uses))
		add := func(c *account.TunnelCredential, err error) {
			if err == nil {
				live[c.Use()] = c
			}
		}
		err := eachLive(t, &authtokens, tokens, func(a *account.Authtoken) { add(a.TunnelCredential(), nil) })
		if err == nil {
			err = eachLive(t, &apiKeys, keys, func(k *account.APIKey) { add(k.TunnelCredential()) })
		}
		if err != nil {
			return nil, err
		}
		return live, cr.clusters.eachLiveSubject(t, subjects,
			func(c *account.Cluster, subject *account.ClusterSubject, use account.CredentialUse) {
				add(c.TunnelCredential(subject, use.Token))
			})
	})
}

// eachLive calls do with those of the credentials that exist and have not expired.
func eachLive[T any](t *tx, ct *credentialTable[T], ids []string, do func(*T)) error {
	return t.EachIn(ids, sqldb.Micros(t.now), func(from scanner) error {
		found, err := ct.scan(from)
		if err == nil {
			do(&found)
		}
		return err
	}, `SELECT `+ct.names+` FROM `+ct.name+` WHERE `+notExpired+` AND id IN IDS`)
}

// PinCluster implements account.ClusterPinner. Transactions that write follow one another, so of
// two clusters one finds the key of the other.
func (cr *Credentials) PinCluster(ctx context.Context, accountID, keyID, clusterUID string) error {
	if err := account.ValidateClusterUID("cluster_uid", clusterUID); err != nil {
		return err
	}
	return cr.db.write(ctx, "pinning the cluster of a credential", func(t *tx) error {
		if (account.CredentialUse{ID: keyID}).IsSubject() {
			return cr.clusters.pinSubject(t, accountID, keyID, clusterUID)
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

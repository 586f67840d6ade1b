// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

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
	return ct.insert(t, v, column{"secret_hash", &hash, insertOnly})
}

// bySecret returns the credential with the secret. other is the table of the other kind, which the
// error names for one of its secrets.
func (ct *credentialTable[T]) bySecret(
	ctx context.Context, s *Store, secret, otherNoun, otherPrefix string,
) (*T, error) {
	switch {
	case secret == "":
		return nil, account.Errorf(account.CodeNoCredential, "an %s is required", ct.noun)
	case strings.HasPrefix(secret, otherPrefix):
		return nil, account.Errorf(account.CodeWrongKind, "this is an %s (%s…); an %s (%s…) is required here",
			otherNoun, otherPrefix, ct.noun, ct.prefix)
	}
	var found *T
	err := s.read(ctx, "looking for "+ct.noun, func(t *tx) (err error) {
		found, err = ct.first(t, `secret_hash = $1`, account.HashSecret(secret))
		switch {
		case err != nil:
			return err
		case found == nil:
			return account.Errorf(account.CodeUnknownCredential, "the %s is not known; it may have been deleted",
				ct.noun)
		}
		if expires := ct.expiresAt(found); expires != nil && !expires.After(t.now) {
			return account.Errorf(account.CodeExpired, "the %s expired at %s", ct.noun, expires.Format(time.RFC3339))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.recordUse(ct.recordUse, ct.id(found))
	return found, nil
}

// allOf returns all credentials of an account, newest first; CodeNotFound for an unknown account.
func (ct *credentialTable[T]) allOf(ctx context.Context, s *Store, accountID string) ([]T, error) {
	return result(ctx, s, "listing "+ct.noun+"s", func(t *tx) ([]T, error) {
		if err := t.accountExists(accountID); err != nil {
			return nil, err
		}
		return ct.all(t, `account_id = $1 ORDER BY id DESC`, accountID)
	})
}

// notExpired selects credentials by their expiry; $1 is the time.
const notExpired = `(expires_at = 0 OR expires_at > $1)`

// LiveCredentials implements account.Authenticator.
func (s *Store) LiveCredentials(
	ctx context.Context, uses []account.CredentialUse,
) (map[account.CredentialUse]bool, error) {
	ids, subjects := splitUses(uses)
	return result(ctx, s, "looking for live credentials", func(t *tx) (map[account.CredentialUse]bool, error) {
		live := make(map[account.CredentialUse]bool, len(uses))
		err := t.EachIn(ids, micros(t.now), func(from scanner) error {
			var use account.CredentialUse
			err := from.Scan(&use.ID)
			live[use] = true
			return err
		}, `SELECT id FROM api_keys WHERE `+notExpired+` AND id IN IDS
			UNION ALL SELECT id FROM authtokens WHERE `+notExpired+` AND id IN IDS`)
		if err != nil {
			return nil, err
		}
		return live, t.eachLiveSubject(subjects,
			func(_ *account.Cluster, _ *account.ClusterSubject, use account.CredentialUse) { live[use] = true })
	})
}

// checkLimit refuses one more row of the account in a table that has as many as it may.
func (t *tx) checkLimit(table, nouns, accountID string, most int, remedy string) error {
	var count int
	if err := t.Row(`SELECT COUNT(*) FROM `+table+` WHERE account_id = $1`, accountID).Scan(&count); err != nil {
		return err
	}
	if count >= most {
		return account.Errorf(account.CodeLimit, "the account has %d %s, which is its limit; %s", count, nouns, remedy)
	}
	return nil
}

const deleteUnused = "delete unused ones"

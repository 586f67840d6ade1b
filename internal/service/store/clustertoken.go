// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ClusterByKey implements account.ClusterTokens.
func (cs *Clusters) ClusterByKey(ctx context.Context, accountID, keyID string) (*account.Cluster, error) {
	return result(ctx, cs.db, "looking for the cluster of a key", func(t *tx) (*account.Cluster, error) {
		if err := cs.accounts.exists(t, accountID); err != nil {
			return nil, err
		}
		c, err := clusters.first(t, `account_id = $1 AND id IN
			(SELECT cluster_id FROM cluster_keys WHERE account_id = $1 AND key_id = $2)`, accountID, keyID)
		if err == nil && c == nil {
			err = account.Errorf(account.CodeUnknownKey, "no cluster of the account has a key with the kid %q; "+
				"after a change of a cluster's keys: kubectl get --raw /openid/v1/jwks | fairlead api clusters update "+
				"ID --add-jwks-file -", account.Shorten(keyID))
		}
		return c, err
	})
}

// PinServiceAccount implements account.ClusterTokens. Transactions that write follow one another,
// so of two ServiceAccounts one finds the uid of the other.
func (cs *Clusters) PinServiceAccount(
	ctx context.Context, accountID, subjectID, uid string,
) (*account.Cluster, error) {
	return writeResult(ctx, cs.db, "pinning the uid of a ServiceAccount", func(t *tx) (*account.Cluster, error) {
		c, err := cs.ofSubject(t, accountID, subjectID)
		if err != nil {
			return nil, err
		}
		subject := c.Subject(subjectID)
		switch subject.UID {
		case uid:
			return c, nil
		case "":
			subject.UID = uid
			return c, cs.update(t, c, account.Caller{AccountID: accountID, PrincipalID: subjectID},
				map[string]string{"subject_id": subjectID, "uid": uid})
		}
		return nil, account.ErrOtherUID(c, subject)
	})
}

// HandOverKeys implements account.ClusterKeys.
func (cs *Clusters) HandOverKeys(
	ctx context.Context, by account.Caller, token account.ServiceAccountToken, keys account.KeySet,
) (*account.KeyHandover, error) {
	return writeResult(ctx, cs.db, "handing over keys of a cluster", func(t *tx) (*account.KeyHandover, error) {
		c, err := cs.ofSubject(t, by.AccountID, by.PrincipalID)
		if account.CodeOf(err) == account.CodeNotFound {
			return nil, account.Errorf(account.CodeScope, "%s is no ServiceAccount of a cluster: keys are handed over "+
				"with a ServiceAccount token of the role operator", by.PrincipalID)
		}
		if err != nil {
			return nil, err
		}
		return cs.handOverKeys(t, c, by, token, keys)
	})
}

func (cs *Clusters) handOverKeys(
	t *tx, c *account.Cluster, by account.Caller, token account.ServiceAccountToken, keys account.KeySet,
) (*account.KeyHandover, error) {
	subject := c.Subject(by.PrincipalID)
	switch {
	case subject.Role != account.RoleOperator:
		return nil, account.Errorf(account.CodeScope, "%s of cluster %s has the role %s; keys are handed over by an "+
			"operator", subject, c.Name, subject.Role)
	case !c.Admits(subject, token, t.now):
		return nil, account.Errorf(account.CodeUnknownCredential, "the token of %s is not accepted any more", subject)
	}
	result := &account.KeyHandover{ClusterID: c.ID, KeySource: c.KeySource, Added: []string{}, Missing: []string{}}
	learned, added, err := c.Learn(keys, token.KeyID, t.now)
	switch {
	case err != nil:
		return nil, err
	case len(added) == 0:
		return result, nil
	case c.KeySource == account.KeysByHand:
		result.Missing = added
		return result, nil
	}
	result.Added = added
	return result, cs.updateKeys(t, &learned, by, map[string]string{"subject_id": subject.ID,
		"added_keys": account.Shorten(strings.Join(added, " ")), "vouched_by_key": token.KeyID})
}

// updateKeys is update for a cluster whose keys have changed.
func (cs *Clusters) updateKeys(t *tx, c *account.Cluster, by account.Caller, details map[string]string) error {
	if err := cs.check(t, c); err != nil {
		return err
	}
	if err := cs.index(t, c); err != nil {
		return err
	}
	return cs.update(t, c, by, details)
}

// IssuerClusters implements account.IssuerKeys.
func (cs *Clusters) IssuerClusters(ctx context.Context, accountID, issuer string) ([]account.Cluster, error) {
	return result(ctx, cs.db, "looking for clusters of an issuer", func(t *tx) ([]account.Cluster, error) {
		q := query{text: `key_source = $1`, args: []any{string(account.KeysFromIssuer)}}
		if accountID != "" {
			q.andIf(true, `account_id = `, accountID)
			q.andIf(true, `issuer = `, issuer)
		}
		return clusters.all(t, q.text, q.args...)
	})
}

// LearnPublished implements account.IssuerKeys.
func (cs *Clusters) LearnPublished(ctx context.Context, read *account.Cluster, keys account.KeySet) error {
	return cs.db.write(ctx, "taking the keys of an issuer", func(t *tx) error {
		c, err := clusters.get(t, read.AccountID, read.ID)
		if err != nil || c.KeySource != account.KeysFromIssuer || c.Issuer != read.Issuer {
			return err
		}
		learned, added, err := c.LearnPublished(keys, t.now)
		if err != nil || len(added) == 0 && len(learned.JWKS.Keys) == len(c.JWKS.Keys) {
			return err
		}
		return cs.updateKeys(t, &learned, account.Caller{AccountID: c.AccountID}, map[string]string{
			"issuer": account.Shorten(c.Issuer), "added_keys": account.Shorten(strings.Join(added, " "))})
	})
}

// pinSubject is PinCluster for a subject.
func (cs *Clusters) pinSubject(t *tx, accountID, subjectID, clusterUID string) error {
	c, err := cs.ofSubject(t, accountID, subjectID)
	if err != nil {
		return err
	}
	switch {
	case c.Subject(subjectID).Role != account.RoleExporter:
		return account.Errorf(account.CodeScope, "subject %s of cluster %s is no exporter", subjectID, c.Name)
	case c.ClusterUID == clusterUID:
		return nil
	case c.ClusterUID == "":
		c.ClusterUID = clusterUID
		return cs.update(t, c, account.Caller{AccountID: accountID, PrincipalID: subjectID},
			map[string]string{"cluster_uid": clusterUID})
	}
	return account.ErrOtherCluster(subjectID, c.ClusterUID, clusterUID)
}

// ofSubject returns the account's cluster that has the subject; CodeNotFound when none has.
func (cs *Clusters) ofSubject(t *tx, accountID, subjectID string) (*account.Cluster, error) {
	c, err := clusters.first(t, `account_id = $1 AND id IN (SELECT cluster_id FROM cluster_subjects WHERE id = $2)`,
		accountID, subjectID)
	if err == nil && c == nil {
		return nil, notFound("subject", subjectID)
	}
	return c, err
}

// update writes what the use of a cluster's token has changed, with an audit event.
func (cs *Clusters) update(t *tx, c *account.Cluster, by account.Caller, details map[string]string) error {
	c.UpdatedAt = t.now
	t.audit(by, clusters.updated, c.ID, details)
	return clusters.update(t, c)
}

// MarkClusterUsed implements account.ClusterTokens.
func (cs *Clusters) MarkClusterUsed(id string) { cs.uses.record(clusterUsed, id) }

// eachLiveSubject calls do with those of the subjects in use that exist and whose token is admitted.
func (cs *Clusters) eachLiveSubject(
	t *tx, uses []account.CredentialUse, do func(*account.Cluster, *account.ClusterSubject, account.CredentialUse),
) error {
	ids := make([]string, len(uses))
	for i, use := range uses {
		ids[i] = use.ID
	}
	bySubject := make(map[string]*account.Cluster)
	err := t.EachIn(ids, "", func(from scanner) error {
		c, err := clusters.scan(from)
		for _, subject := range c.Subjects {
			bySubject[subject.ID] = &c
		}
		return err
	}, `SELECT `+clusters.names+` FROM clusters WHERE id <> $1
		AND id IN (SELECT cluster_id FROM cluster_subjects WHERE id IN IDS)`)
	if err != nil {
		return err
	}
	for _, use := range uses {
		if c := bySubject[use.ID]; c != nil {
			if subject := c.Subject(use.ID); c.Admits(subject, use.Token, t.now) {
				do(c, subject, use)
			}
		}
	}
	return nil
}

// splitUses separates the uses of subjects from those of other credentials, whose ids it returns.
func splitUses(uses []account.CredentialUse) (ids []string, subjects []account.CredentialUse) {
	for _, use := range uses {
		if use.IsSubject() {
			subjects = append(subjects, use)
		} else {
			ids = append(ids, use.ID)
		}
	}
	return ids, subjects
}

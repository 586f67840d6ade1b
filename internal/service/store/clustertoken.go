// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ClusterByKey implements account.ClusterTokens.
func (s *Store) ClusterByKey(ctx context.Context, accountID, keyID string) (c *account.Cluster, err error) {
	err = s.read(ctx, "looking for the cluster of a key", func(t *tx) (err error) {
		if err := t.accountExists(accountID); err != nil {
			return err
		}
		c, err = clusters.first(t, `account_id = $1 AND id IN
			(SELECT cluster_id FROM cluster_keys WHERE account_id = $1 AND key_id = $2)`, accountID, keyID)
		if err == nil && c == nil {
			err = account.Errorf(account.CodeUnknownCredential, "no cluster of the account has a key with the kid %q; "+
				"after a change of a cluster's keys: kubectl get --raw /openid/v1/jwks | fairlead api clusters update "+
				"ID --add-jwks-file -", account.Shorten(keyID))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// PinServiceAccount implements account.ClusterTokens. Transactions that write follow one another,
// so of two ServiceAccounts one finds the uid of the other.
func (s *Store) PinServiceAccount(
	ctx context.Context, accountID, subjectID, uid string,
) (c *account.Cluster, err error) {
	err = s.write(ctx, "pinning the uid of a ServiceAccount", func(t *tx) (err error) {
		if c, err = t.clusterOfSubject(accountID, subjectID); err != nil {
			return err
		}
		subject := c.Subject(subjectID)
		switch subject.UID {
		case uid:
			return nil
		case "":
			subject.UID = uid
			return t.updateCluster(c, account.Caller{AccountID: accountID, PrincipalID: subjectID},
				map[string]string{"subject_id": subjectID, "uid": uid})
		}
		return account.ErrOtherUID(c, subject)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// pinSubject is PinCluster for a subject.
func (t *tx) pinSubject(accountID, subjectID, clusterUID string) error {
	c, err := t.clusterOfSubject(accountID, subjectID)
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
		return t.updateCluster(c, account.Caller{AccountID: accountID, PrincipalID: subjectID},
			map[string]string{"cluster_uid": clusterUID})
	}
	return account.ErrOtherCluster(subjectID, c.ClusterUID, clusterUID)
}

// clusterOfSubject returns the account's cluster that has the subject; CodeNotFound when none has.
func (t *tx) clusterOfSubject(accountID, subjectID string) (*account.Cluster, error) {
	c, err := clusters.first(t, `account_id = $1 AND id IN (SELECT cluster_id FROM cluster_subjects WHERE id = $2)`,
		accountID, subjectID)
	if err == nil && c == nil {
		return nil, notFound("subject", subjectID)
	}
	return c, err
}

// updateCluster writes what the use of a cluster's token has changed, with an audit event.
func (t *tx) updateCluster(c *account.Cluster, by account.Caller, details map[string]string) error {
	c.UpdatedAt = t.now
	t.audit(by, clusters.updated, c.ID, details)
	return clusters.update(t, c)
}

// MarkClusterUsed implements account.ClusterTokens.
func (s *Store) MarkClusterUsed(id string) { s.recordUse(clusterUsed, id) }

// eachLiveSubject calls do with those of the subjects in use that exist and whose token is admitted.
func (t *tx) eachLiveSubject(
	uses []account.CredentialUse, do func(*account.Cluster, *account.ClusterSubject, account.CredentialUse),
) error {
	for batch := range slices.Chunk(uses, inListBatch) {
		ids := make([]string, len(batch))
		for i, use := range batch {
			ids[i] = use.ID
		}
		q := query{}
		in := q.in(`id`, ids)
		found, err := clusters.all(t, `id IN (SELECT cluster_id FROM cluster_subjects WHERE `+in+`)`, q.args...)
		if err != nil {
			return err
		}
		bySubject := make(map[string]*account.Cluster)
		for i := range found {
			for _, subject := range found[i].Subjects {
				bySubject[subject.ID] = &found[i]
			}
		}
		for _, use := range batch {
			c := bySubject[use.ID]
			if c == nil {
				continue
			}
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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// KeySource is where the service gets new keys of a cluster from. Administrators may always change
// keys.
type KeySource string

// The sources of keys.
const (
	// KeysFromCluster accepts the keys that the cluster's operator hands over with a token of a key
	// that is trusted already.
	KeysFromCluster KeySource = "cluster"
	// KeysFromIssuer fetches the keys that the issuer publishes (OpenID Connect Discovery 1.0), as
	// the issuers of EKS, GKE and AKS do, and those of KeysFromCluster.
	KeysFromIssuer KeySource = "issuer"
	// KeysByHand accepts keys from administrators only.
	KeysByHand KeySource = "manual"
)

// KeySources lists the sources.
func KeySources() []KeySource { return []KeySource{KeysFromCluster, KeysFromIssuer, KeysByHand} }

// How long a learned key stays at least.
const (
	learnedKeyLife   = 24 * time.Hour // where a manager handed it over: many lives of a token
	publishedKeyLife = time.Hour      // where an issuer published it: caches of issuers may be behind
)

// KeyHandover is the result of keys that an operator has handed over.
type KeyHandover struct {
	ClusterID string    `json:"cluster_id"`
	KeySource KeySource `json:"key_source"`
	Added     []string  `json:"added"`   // kids of the keys that are new
	Missing   []string  `json:"missing"` // kids of the keys that are still not trusted
}

// IssuerKeys stores the keys that the issuers of clusters publish.
type IssuerKeys interface {
	// IssuerClusters returns the clusters with KeysFromIssuer: those of an account with the issuer,
	// or all of all accounts for an empty accountID.
	IssuerClusters(ctx context.Context, accountID, issuer string) ([]Cluster, error)
	// LearnPublished makes the cluster have the keys that its issuer publishes, as
	// Cluster.LearnPublished does, unless its KeySource or Issuer was changed since it was read.
	// CodeNotFound when the cluster is gone; CodeInUse for a key of another cluster.
	LearnPublished(ctx context.Context, c *Cluster, keys KeySet) error
}

// LearnPublished returns the cluster with the keys that its issuer publishes: new ones are added,
// and learned ones that it publishes no more go, unless they were learned in the last hour. Keys
// that administrators gave stay. Errors as with Learn.
func (c Cluster) LearnPublished(keys KeySet, now time.Time) (learned Cluster, added []string, err error) {
	c.JWKS.Keys = slices.DeleteFunc(slices.Clone(c.JWKS.Keys), func(k ClusterKey) bool {
		return k.LearnedAt != nil && keys.Key(k.KeyID) == nil && now.Sub(*k.LearnedAt) >= publishedKeyLife
	})
	return c.Learn(keys, "", now)
}

// Learn returns the cluster with the keys that it lacks, and their kids. Learned keys that are not
// among the keys, not vouching, and older than a day make room where more than MaxClusterKeys would
// be kept, the oldest first: a cluster that rotates its keys every week would reach that limit. No
// other key goes. CodeInvalid for another key under a known kid, and when there is no room.
func (c Cluster) Learn(keys KeySet, vouching string, now time.Time) (learned Cluster, added []string, err error) {
	var r rules
	all := slices.Clone(c.JWKS.Keys)
	for i, k := range keys.Keys {
		known := c.JWKS.Key(k.KeyID)
		if known == nil {
			k.LearnedAt = &now
			all, added = append(all, k), append(added, k.KeyID)
			continue
		}
		if k.LearnedAt = known.LearnedAt; k != *known {
			r.add(fmt.Sprintf("jwks.keys[%d].kid", i), k.KeyID, "is the kid of another key of the cluster; an "+
				"administrator can replace that one")
		}
	}
	for len(all) > MaxClusterKeys {
		oldest := -1
		for i, k := range all {
			if k.LearnedAt == nil || keys.Key(k.KeyID) != nil || k.KeyID == vouching ||
				now.Sub(*k.LearnedAt) < learnedKeyLife {
				continue
			}
			if oldest < 0 || k.LearnedAt.Before(*all[oldest].LearnedAt) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		all = slices.Delete(all, oldest, oldest+1)
	}
	c.JWKS = KeySet{Keys: all}
	r = append(r, FieldsOf(c.JWKS.validate())...)
	return c, added, r.err()
}

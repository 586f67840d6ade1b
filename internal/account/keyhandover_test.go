// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestCluster_LearnsForEver rotates the keys of a cluster every week for two years, and tries to push
// its keys out with others.
func TestCluster_LearnsForEver(t *testing.T) {
	t.Parallel()
	key := func(kid string) account.ClusterKey { return account.ClusterKey{KeyID: kid, X: kid} }
	now := time.Unix(1_800_000_000, 0)
	c := account.Cluster{JWKS: account.KeySet{Keys: []account.ClusterKey{key("given")}}}
	last := "given"
	learn := func(kids ...string) error {
		var set account.KeySet
		for _, kid := range kids {
			set.Keys = append(set.Keys, key(kid))
		}
		learned, added, err := c.Learn(set, last, now)
		if err == nil {
			c = learned
			for _, kid := range added {
				if c.JWKS.Key(kid) == nil {
					t.Errorf("%s is told as added and is not there", kid)
				}
			}
		}
		return err
	}
	for week := range 104 {
		next := fmt.Sprint("week-", week)
		if err := learn(last, next); err != nil {
			t.Fatalf("%s: %v", next, err)
		}
		last, now = next, now.Add(7*24*time.Hour)
	}
	for _, kid := range []string{"given", "week-103", "week-102", "week-89"} {
		if c.JWKS.Key(kid) == nil {
			t.Errorf("%s is gone; there are %v", kid, c.JWKS.Keys)
		}
	}
	if c.JWKS.Key("week-88") != nil || len(c.JWKS.Keys) != account.MaxClusterKeys {
		t.Errorf("%d keys, with old ones", len(c.JWKS.Keys))
	}
	var junk []string
	for i := range account.MaxClusterKeys {
		junk = append(junk, fmt.Sprint("junk-", i))
	}
	if err := learn(junk...); account.CodeOf(err) != account.CodeInvalid {
		t.Errorf("as many keys as fit, beside the one that vouches: %v", err)
	}
	if err := learn(junk[2:]...); err != nil {
		t.Error(err)
	}
	if c.JWKS.Key("given") == nil || c.JWKS.Key(last) == nil {
		t.Error("keys were pushed out that were given, or vouched")
	}
	if err := learn("fresh"); account.CodeOf(err) != account.CodeInvalid {
		t.Errorf("keys of the same day made room: %v", err)
	}
}

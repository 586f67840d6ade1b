// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// addClusters adds clusters with subjects, one of them unused, and tokens that were refused.
func (f *fake) addClusters() {
	used := []time.Duration{2 * time.Minute, 21 * 24 * time.Hour, 0}
	for i, name := range []string{"eu-1", "us-1", "lab"} {
		age := time.Duration(18-i) * 24 * time.Hour
		c := account.Cluster{ID: f.id(account.PrefixCluster, age, i+1), AccountID: mine, Name: name,
			Issuer: account.DefaultIssuer, CreatedAt: ago(f, age), UpdatedAt: ago(f, age/2),
			JWKS: account.KeySet{Keys: []account.ClusterKey{{KeyID: "qz1uXq0m3Dd7b0pTn6Xo2cYt4bJ8vW5sRk9fLhEaGiU",
				Type: "RSA", Algorithm: "RS256"}}}}
		if used[i] > 0 {
			c.LastUsedAt, c.ClusterUID = new(ago(f, used[i])), f.ops[i].ClusterUID
		}
		for n, role := range account.SubjectRoles() {
			s := account.ClusterSubject{ID: f.id(account.PrefixClusterSubject, age, 10*i+n), Namespace: "fairlead",
				ServiceAccount: "fairlead-operator-" + []string{"manager", "forwarder", "exporter"}[n], Role: role,
				ACL: []account.ACL{{}, account.DefaultForwarderACL(), {"export:books/*", "bind:http://*.books"}}[n]}
			if used[i] > 0 && n < 2 {
				s.UID = "0b6e6a52-3d1f-4f5e-9a44-7c1f2d1b8e0" + []string{"1", "2"}[n]
			}
			c.Subjects = append(c.Subjects, s)
		}
		f.clusters, f.owner[c.ID] = append(f.clusters, c), mine
	}
	f.clusters[1].Issuer, f.clusters[1].Description = "https://oidc.us.example.com/id/8D1F3A", "New York"
	f.clusters[1].JWKS.Keys = append(f.clusters[1].JWKS.Keys, account.ClusterKey{KeyID: "2026-11", Type: "EC",
		Algorithm: "ES256"})
	for i, r := range []struct {
		of     string
		reason string
		age    time.Duration
	}{
		{f.clusters[1].ID, "the token is of another ServiceAccount fairlead/fairlead-operator-manager than the one " +
			"that cluster us-1 has presented before: it was deleted and made again", 9 * time.Minute},
		{"", "no cluster of the account has a key with the kid \"2027-02\"", 70 * time.Minute},
		{f.clusters[0].ID, "it is far too old to be shown", 30 * 24 * time.Hour},
	} {
		e := account.AuditEvent{ID: f.id(account.PrefixEvent, r.age, 100+i), Type: account.AuditTokenRefused,
			OccurredAt: ago(f, r.age), Details: map[string]string{"reason": r.reason, "key_id": "2027-02",
				"issuer": account.DefaultIssuer, "namespace": "fairlead",
				"service_account": "fairlead-operator-manager", "uid": "5d0e7f1c-9a3b-4c86-8f55-2b61d3a7c9f0",
				"token_expires": ago(f, r.age-time.Hour).UTC().Format(time.RFC3339)}}
		if r.of != "" {
			e.Object = &account.Ref{ID: r.of}
		}
		f.events, f.owner[e.ID] = append(f.events, e), mine
	}
}

func (f *fake) Cluster(_ context.Context, accountID, id string) (*account.Cluster, error) {
	return get(f, &f.clusters, clusterID, accountID, id)
}

func (f *fake) ListClusters(
	_ context.Context, accountID string, p account.Page,
) (page []account.Cluster, more bool, err error) {
	return list(f, &f.clusters, clusterID, accountID, p, nil)
}

func (f *fake) DeleteCluster(_ context.Context, by account.Caller, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	err := remove(f, &f.clusters, clusterID, by.AccountID, id)
	if err == nil {
		f.callers = append(f.callers, by)
	}
	return err
}

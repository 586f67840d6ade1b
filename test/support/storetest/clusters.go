// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

// Uses returns the uses of credentials that are no tokens.
func Uses(ids ...string) []account.CredentialUse {
	uses := make([]account.CredentialUse, len(ids))
	for i, id := range ids {
		uses[i].ID = id
	}
	return uses
}

// ClusterPatch describes a cluster with one key and a subject of each role.
func ClusterPatch(t testing.TB, name, keyID string) account.ClusterPatch {
	t.Helper()
	set := accounttest.NewTokenSigner(t, keyID, "ES256").KeySet(t)
	return account.ClusterPatch{Name: &name, JWKS: &set, Subjects: &[]account.SubjectPatch{
		{Namespace: "fairlead", ServiceAccount: "manager", Role: account.RoleOperator},
		{Namespace: "fairlead", ServiceAccount: "forwarder", Role: account.RoleForwarder},
		{Namespace: "fairlead", ServiceAccount: "exporter", Role: account.RoleExporter},
	}}
}

// NewCluster makes a cluster of ClusterPatch.
func (f *Fixture) NewCluster(name, keyID string) *account.Cluster {
	f.T.Helper()
	c, err := f.Store.CreateCluster(f.ctx(), account.Caller{AccountID: f.AccountID}, ClusterPatch(f.T, name, keyID))
	Must(f.T, err)
	return c
}

// keySet returns new public keys with the kids.
func (f *Fixture) keySet(kids ...string) account.KeySet {
	var set account.KeySet
	for _, kid := range kids {
		set.Keys = append(set.Keys, accounttest.NewTokenSigner(f.T, kid, "ES256").KeySet(f.T).Keys...)
	}
	return set
}

// describeCluster describes what a patch may change.
func describeCluster(c *account.Cluster) string {
	text := fmt.Sprint(c.Name, " ", c.Issuer, " ", c.ClusterUID)
	for _, k := range c.JWKS.Keys {
		text += " " + k.KeyID
	}
	for _, s := range c.Subjects {
		text += fmt.Sprint(" ", s.ServiceAccount, s.ACL, s.UID)
	}
	return text
}

// trustedClusters tests clusters whose ServiceAccounts are trusted.
var trustedClusters = map[string]func(*testing.T, Open){
	"cluster: create, read, list, delete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID, PrincipalID: "ak-1"}
		made := f.NewCluster("prod", "k1")
		Equal(t, "made", describeCluster(made), "prod "+account.DefaultIssuer+"  k1 manager[] forwarder[connect:*] "+
			"exporter[export:* bind:*]")
		read, err := f.Store.Cluster(t.Context(), f.AccountID, made.ID)
		Must(t, err)
		Equal(t, "read", fmt.Sprint(*read), fmt.Sprint(*made))
		f.Clock.Step(time.Second)
		second := f.NewCluster("staging", "k2")
		page, more, err := f.Store.ListClusters(t.Context(), f.AccountID, account.Page{Limit: 1})
		Must(t, err)
		Equal(t, "first page", fmt.Sprint(len(page), page[0].ID == second.ID, more),
			"1 true true")
		Must(t, f.Store.DeleteCluster(t.Context(), by, made.ID))
		MustCode(t, f.Store.DeleteCluster(t.Context(), by, made.ID), account.CodeNotFound)
		_, err = f.Store.ClusterByKey(t.Context(), f.AccountID, "k1")
		MustCode(t, err, account.CodeUnknownKey)
		f.NewCluster("prod", "k1") // name and key are free again
		events, err := f.Store.AuditEvents(t.Context(), f.AccountID,
			account.AuditFilter{Type: account.AuditClusterDeleted}, account.Page{})
		Must(t, err)
		Equal(t, "audit", fmt.Sprint(len(events.Events), events.Events[0].Principal.ID, events.Events[0].Details),
			"1ak-1map[issuer:"+account.DefaultIssuer+" keys:1 name:prod subjects:3]")
	},
	"cluster: names and keys belong to one": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxClusters = 2 })
		by := account.Caller{AccountID: f.AccountID}
		first := f.NewCluster("prod", "k1")
		for _, p := range []account.ClusterPatch{ClusterPatch(t, "prod", "k9"), ClusterPatch(t, "other", "k1")} {
			_, err := f.Store.CreateCluster(t.Context(), by, p)
			MustCode(t, err, account.CodeInUse)
			if !strings.Contains(err.Error(), first.ID) {
				t.Errorf("the refusal does not name the cluster: %v", err)
			}
		}
		second := f.NewCluster("staging", "k2")
		set := accounttest.NewTokenSigner(t, "k1", "ES256").KeySet(t)
		_, err := f.Store.PatchCluster(t.Context(), by, second.ID, account.ClusterPatch{AddJWKS: &set})
		MustCode(t, err, account.CodeInUse)
		_, err = f.Store.CreateCluster(t.Context(), by, ClusterPatch(t, "third", "k3"))
		MustCode(t, err, account.CodeLimit)
		other, _ := f.NewAccount("other")
		them := account.Caller{AccountID: other}
		theirs, err := f.Store.CreateCluster(t.Context(), them, ClusterPatch(t, "prod", "k1"))
		Must(t, err)
		for accountID, want := range map[string]string{f.AccountID: first.ID, other: theirs.ID} {
			c, err := f.Store.ClusterByKey(t.Context(), accountID, "k1")
			Must(t, err)
			Equal(t, "by key", c.ID, want)
		}
		_, err = f.Store.Cluster(t.Context(), other, first.ID)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.PatchCluster(t.Context(), them, first.ID, account.ClusterPatch{})
		MustCode(t, err, account.CodeNotFound)
		MustCode(t, f.Store.DeleteCluster(t.Context(), them, first.ID), account.CodeNotFound)
		_, err = f.Store.PinServiceAccount(t.Context(), other, first.Subjects[0].ID, "u")
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.ClusterByKey(t.Context(), "ac-none", "k1")
		MustCode(t, err, account.CodeNotFound)
	},
	"cluster: patch rotates keys and keeps subjects": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		c := f.NewCluster("prod", "k1")
		f.Clock.Step(time.Minute)
		set := accounttest.NewTokenSigner(t, "k2", "RS256").KeySet(t)
		patched, err := f.Store.PatchCluster(t.Context(), by, c.ID, account.ClusterPatch{
			AddJWKS: &set, RemoveKeys: []string{"k1"}, Issuer: new("https://issuer.example"),
			Subjects: &[]account.SubjectPatch{
				{Namespace: "fairlead", ServiceAccount: "exporter", Role: account.RoleExporter,
					ACL: &[]string{"export:a/*", "bind:*"}, UID: new("u-9")},
				{Namespace: "fairlead", ServiceAccount: "forwarder", Role: account.RoleExporter},
			}})
		Must(t, err)
		Equal(t, "patched", describeCluster(patched), "prod https://issuer.example  k2 exporter[export:a/* bind:*]u-9 "+
			"forwarder[export:* bind:*]")
		Equal(t, "ids", fmt.Sprint(patched.Subjects[0].ID == c.Subjects[2].ID,
			patched.Subjects[1].ID == c.Subjects[1].ID, patched.UpdatedAt.After(c.UpdatedAt)), "true false true")
		for id, want := range map[string]account.Code{"k2": "", "k1": account.CodeUnknownKey} {
			_, err := f.Store.ClusterByKey(t.Context(), f.AccountID, id)
			MustCode(t, err, want)
		}
		for _, bad := range []account.ClusterPatch{{RemoveKeys: []string{"k2"}}, {RemoveKeys: []string{"k1"}},
			{Name: new("A b")}, {Issuer: new("")}, {Subjects: &[]account.SubjectPatch{{Namespace: "a"}}}} {
			_, err := f.Store.PatchCluster(t.Context(), by, c.ID, bad)
			MustCode(t, err, account.CodeInvalid)
		}
	},
	"cluster: tokens in use": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		c := f.NewCluster("prod", "k1")
		for _, s := range c.Subjects {
			_, err := f.Store.PinServiceAccount(t.Context(), f.AccountID, s.ID, "u-"+s.ServiceAccount)
			Must(t, err)
		}
		token := account.ServiceAccountToken{KeyID: "k1", UID: "u-exporter",
			Expires: f.Clock.Now().Add(time.Hour).Unix()}
		exporter := account.CredentialUse{ID: c.Subjects[2].ID, Token: token}
		token.UID = "u-manager"
		manager := account.CredentialUse{ID: c.Subjects[0].ID, Token: token}
		token.UID = "u-other"
		stale := account.CredentialUse{ID: c.Subjects[0].ID, Token: token}
		live := func() string {
			uses := append(Uses(f.TokenID), exporter, manager, stale)
			alive, err := f.Store.LiveCredentials(t.Context(), uses)
			Must(t, err)
			tunnels, err := f.Store.LiveTunnelCredentials(t.Context(), uses)
			Must(t, err)
			text := fmt.Sprint(alive[uses[0]], alive[exporter], alive[manager], alive[stale], len(tunnels))
			if e := tunnels[exporter]; e != nil {
				text += fmt.Sprint(e.ACL, e.IsAPIKey, e.ClusterUID, e.Use() == exporter)
			}
			return text
		}
		Equal(t, "all", live(), "true true true false 2[export:* bind:*] truetrue")
		Must(t, f.Store.PinCluster(t.Context(), f.AccountID, exporter.ID, "uid-1"))
		MustCode(t, f.Store.PinCluster(t.Context(), f.AccountID, exporter.ID, "uid-2"), account.CodeScope)
		MustCode(t, f.Store.PinCluster(t.Context(), f.AccountID, manager.ID, "uid-1"), account.CodeScope)
		Equal(t, "pinned", live(), "true true true false 2[export:* bind:*] trueuid-1true")
		_, err := f.Store.PatchCluster(t.Context(), by, c.ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{
			{Namespace: "fairlead", ServiceAccount: "manager", Role: account.RoleOperator, UID: new("")},
			{Namespace: "fairlead", ServiceAccount: "exporter", Role: account.RoleExporter}}})
		Must(t, err)
		Equal(t, "UID was reset", live(), "true true false false 2[export:* bind:*] trueuid-1true")
		f.Clock.Step(time.Hour + account.TokenGrace - time.Second)
		Equal(t, "until the end of the grace", live(), "true true false false 2[export:* bind:*] trueuid-1true")
		f.Clock.Step(time.Second)
		Equal(t, "after it", live(), "true false false false 1")
	},
	"cluster: ends with key, subject or cluster": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		for i, end := range []func(id string) error{
			func(id string) error { return f.Store.DeleteCluster(t.Context(), by, id) },
			func(id string) error {
				_, err := f.Store.PatchCluster(t.Context(), by, id,
					account.ClusterPatch{Subjects: &[]account.SubjectPatch{}})
				return err
			},
			func(id string) error {
				set := accounttest.NewTokenSigner(t, "new"+id, "ES256").KeySet(t)
				_, err := f.Store.PatchCluster(t.Context(), by, id, account.ClusterPatch{JWKS: &set})
				return err
			},
		} {
			c := f.NewCluster(fmt.Sprint("c-", i), fmt.Sprint("k-", i))
			_, err := f.Store.PinServiceAccount(t.Context(), f.AccountID, c.Subjects[1].ID, "u")
			Must(t, err)
			use := []account.CredentialUse{{ID: c.Subjects[1].ID, Token: account.ServiceAccountToken{
				KeyID: c.JWKS.Keys[0].KeyID, UID: "u", Expires: f.Clock.Now().Add(time.Hour).Unix()}}}
			for _, want := range []int{1, 0} {
				found, err := f.Store.LiveTunnelCredentials(t.Context(), use)
				Must(t, err)
				Equal(t, fmt.Sprint("live ", i), len(found), want)
				if want == 1 {
					Must(t, end(c.ID))
				}
			}
		}
	},
	"cluster: race for the UID of a ServiceAccount": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		second, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, second.Close()) }()
		for round := range 4 {
			c := f.NewCluster(fmt.Sprint("c-", round), fmt.Sprint("k-", round))
			var all sync.WaitGroup
			var failed [2]error
			for i, s := range []*store.Store{f.Store, second} {
				all.Go(func() {
					_, failed[i] = s.PinServiceAccount(t.Context(), f.AccountID, c.Subjects[0].ID, fmt.Sprint("u-", i))
				})
			}
			all.Wait()
			read, err := f.Store.Cluster(t.Context(), f.AccountID, c.ID)
			Must(t, err)
			for i, err := range failed {
				if read.Subjects[0].UID == fmt.Sprint("u-", i) {
					Must(t, err)
				} else {
					MustCode(t, err, account.CodeUnknownCredential)
				}
			}
		}
	},
	"cluster: keys handed over": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		c := f.NewCluster("prod", "k1")
		f.NewCluster("staging", "taken")
		by := account.Caller{AccountID: f.AccountID, PrincipalID: c.Subjects[0].ID}
		_, err := f.Store.PinServiceAccount(t.Context(), f.AccountID, by.PrincipalID, "u")
		Must(t, err)
		handOver := func(vouching string, kids ...string) (*account.KeyHandover, error) {
			token := account.ServiceAccountToken{KeyID: vouching, UID: "u",
				Expires: f.Clock.Now().Add(time.Hour).Unix()}
			return f.Store.HandOverKeys(t.Context(), by, token, f.keySet(kids...))
		}
		result, err := handOver("k1", "k2")
		Must(t, err)
		Equal(t, "result", fmt.Sprint(*result), fmt.Sprintf("{%s cluster [k2] []}", c.ID))
		_, err = handOver("k1", "k2") // another key under the same kid
		MustCode(t, err, account.CodeInvalid)
		_, err = handOver("k1", "taken")
		MustCode(t, err, account.CodeInUse)
		_, err = handOver("k9", "k3")
		MustCode(t, err, account.CodeUnknownCredential)
		read, err := f.Store.ClusterByKey(t.Context(), f.AccountID, "k2")
		Must(t, err)
		Equal(t, "learned", fmt.Sprint(read.JWKS.Keys[0].LearnedAt == nil, read.JWKS.Keys[1].LearnedAt != nil,
			len(read.JWKS.Keys)), "true true 2")
		events, err := f.Store.AuditEvents(t.Context(), f.AccountID,
			account.AuditFilter{Type: account.AuditClusterUpdated}, account.Page{})
		Must(t, err)
		Equal(t, "audit", fmt.Sprint(events.Events[0].Principal.ID == by.PrincipalID, events.Events[0].Details),
			fmt.Sprintf("true map[added_keys:k2 subject_id:%s vouched_by_key:k1]", by.PrincipalID))

		manual := account.KeysByHand
		_, err = f.Store.PatchCluster(t.Context(), by, c.ID, account.ClusterPatch{KeySource: &manual})
		Must(t, err)
		result, err = handOver("k1", "k3")
		Must(t, err)
		Equal(t, "by hand", fmt.Sprint(result.Added, result.Missing), "[] [k3]")
		_, err = f.Store.ClusterByKey(t.Context(), f.AccountID, "k3")
		MustCode(t, err, account.CodeUnknownKey)
	},
	"cluster: keys handed over by others": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		c := f.NewCluster("prod", "k1")
		for i, s := range c.Subjects {
			_, err := f.Store.PinServiceAccount(t.Context(), f.AccountID, s.ID, "u")
			Must(t, err)
			if c.Subjects[i].Role == account.RoleOperator {
				c.Subjects[i].ID = "ak-1" // an API key
			}
		}
		for _, s := range c.Subjects {
			_, err := f.Store.HandOverKeys(t.Context(), account.Caller{AccountID: f.AccountID, PrincipalID: s.ID},
				account.ServiceAccountToken{KeyID: "k1", UID: "u", Expires: f.Clock.Now().Add(time.Hour).Unix()},
				f.keySet("k2"))
			MustCode(t, err, account.CodeScope)
		}
	},
	"cluster: use recorded": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		c := f.NewCluster("prod", "k1")
		f.Store.MarkClusterUsed(c.ID)
		f.Clock.Step(time.Minute)
		Must(t, f.Store.Sweep(t.Context()))
		read, err := f.Store.Cluster(t.Context(), f.AccountID, c.ID)
		Must(t, err)
		Equal(t, "last used", read.LastUsedAt != nil, true)
	},
}

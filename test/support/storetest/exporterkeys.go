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
)

// NewExporterKey makes an API key with the scope exporter.
func (f *Fixture) NewExporterKey(adjust ...func(*account.APIKeyPatch)) *account.APIKey {
	f.T.Helper()
	p := account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeExporter}}
	for _, change := range adjust {
		change(&p)
	}
	key, err := f.Store.CreateAPIKey(f.ctx(), account.Caller{AccountID: f.AccountID}, p)
	Must(f.T, err)
	return key
}

// exporterKeys tests API keys with the scope exporter: as credentials of tunnel sessions, and the
// cluster that they belong to.
var exporterKeys = map[string]func(*testing.T, Open){
	"exporter key: create, patch, read": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		made := f.NewExporterKey(func(p *account.APIKeyPatch) {
			p.ACL, p.ClusterUID = &[]string{"export:A/*", "bind:HTTP://A.B:80"}, new("one")
		})
		show := func(k *account.APIKey) string { return fmt.Sprint(k.Scopes, k.ACL, k.ClusterUID) }
		Equal(t, "made", show(made), "[exporter] [export:a/* bind:http://a.b]one")
		_, err := f.Store.PatchAPIKey(t.Context(), by, made.ID, account.APIKeyPatch{ClusterUID: new("two")})
		MustCode(t, err, account.CodeInvalid)
		_, err = f.Store.PatchAPIKey(t.Context(), by, made.ID, account.APIKeyPatch{
			ACL: &[]string{"export:*", "bind:*", "backend:*"}, ClusterUID: new("one")})
		Must(t, err)
		read, err := f.Store.APIKeyBySecret(t.Context(), *made.Token)
		Must(t, err)
		Equal(t, "patched", show(read), "[exporter] [export:* bind:* backend:*]one")
		read, err = f.Store.PatchAPIKey(t.Context(), by, made.ID,
			account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeRead}})
		Must(t, err)
		Equal(t, "another scope", show(read), "[read] []")
		_, err = f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{ACL: &[]string{"bind:*"}})
		MustCode(t, err, account.CodeInvalid)
	},
	"exporter key: credential of tunnel sessions": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		until := f.Clock.Now().Add(time.Hour)
		lasting := f.NewExporterKey(func(p *account.APIKeyPatch) { p.ClusterUID = new("one") })
		made := f.NewExporterKey(func(p *account.APIKeyPatch) { p.Expiry = account.ExpiryPatch{Set: true, At: &until} })
		got, err := f.Store.TunnelCredential(t.Context(), *lasting.Token)
		Must(t, err)
		Equal(t, "credential", fmt.Sprint(got.ID == lasting.ID, got.AccountID == f.AccountID, got.IsAPIKey, got.ACL,
			got.ClusterUID, got.String() == "API key "+lasting.ID), "true true true [export:* bind:*]onetrue")
		Equal(t, "of an authtoken", fmt.Sprint(f.live(f.TokenID)), "[bind:*] false ")
		admin, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
		Must(t, err)
		_, err = f.Store.TunnelCredential(t.Context(), secret)
		MustCode(t, err, account.CodeScope)
		if !strings.Contains(err.Error(), "with the scope admin") || strings.Contains(err.Error(), secret) {
			t.Errorf("an admin key: %v", err)
		}
		Equal(t, "live admin key", f.live(admin.ID), "")
		Equal(t, "live exporter's key", f.live(made.ID), "[export:* bind:*] true ")
		_, err = f.Store.PatchAPIKey(t.Context(), by, made.ID,
			account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeRead}})
		Must(t, err)
		Equal(t, "live key that has another scope now", f.live(made.ID), "")
		_, err = f.Store.PatchAPIKey(t.Context(), by, made.ID,
			account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeExporter}})
		Must(t, err)
		f.Clock.Step(time.Hour)
		Equal(t, "live key that has expired", f.live(made.ID), "")
		_, err = f.Store.TunnelCredential(t.Context(), *made.Token)
		MustCode(t, err, account.CodeExpired)
		Must(t, f.Store.DeleteAPIKey(t.Context(), by, lasting.ID))
		Equal(t, "live key that is deleted", f.live(lasting.ID), "")
		_, err = f.Store.TunnelCredential(t.Context(), *lasting.Token)
		MustCode(t, err, account.CodeUnknownCredential)
	},
	"exporter key: use recorded": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		key := f.NewExporterKey()
		_, err := f.Store.TunnelCredential(t.Context(), *key.Token)
		Must(t, err)
		f.Clock.Step(time.Minute)
		Must(t, f.Store.Sweep(t.Context()))
		read, err := f.Store.APIKey(t.Context(), f.AccountID, key.ID)
		Must(t, err)
		Equal(t, "last used", read.LastUsedAt != nil, true)
	},
	"exporter key: belongs to the first cluster": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		key := f.NewExporterKey()
		pin := func(accountID, id, cluster string) error {
			return f.Store.PinCluster(t.Context(), accountID, id, cluster)
		}
		other, _ := f.NewAccount("other")
		MustCode(t, pin(other, key.ID, "theirs"), account.CodeNotFound)
		MustCode(t, pin(f.AccountID, key.ID, ""), account.CodeInvalid)
		MustCode(t, pin(f.AccountID, key.ID, "a b"), account.CodeInvalid)
		Must(t, pin(f.AccountID, key.ID, "one"))
		Must(t, pin(f.AccountID, key.ID, "one"))
		err := pin(f.AccountID, key.ID, "two")
		MustCode(t, err, account.CodeScope)
		for _, want := range []string{key.ID, "cluster one", "cluster two", "make a key for each cluster",
			"--cluster-uid two"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the refusal lacks %q: %v", want, err)
			}
		}
		read, err := f.Store.APIKey(t.Context(), f.AccountID, key.ID)
		Must(t, err)
		Equal(t, "cluster", read.ClusterUID, "one")
		events, err := f.Store.AuditEvents(t.Context(), f.AccountID,
			account.AuditFilter{Type: account.AuditAPIKeyUpdated}, account.Page{})
		Must(t, err)
		Equal(t, "audit events of changes", len(events.Events), 1)
		Equal(t, "audit event", fmt.Sprint(events.Events[0].Principal.ID, events.Events[0].Details["cluster_uid"]),
			key.ID+"one")
		reader, _, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", []account.Scope{account.ScopeRead}, nil)
		Must(t, err)
		MustCode(t, pin(f.AccountID, reader.ID, "one"), account.CodeScope)
		Must(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, key.ID))
		MustCode(t, pin(f.AccountID, key.ID, "one"), account.CodeNotFound)
	},
	"exporter key: race of two clusters": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		second, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, second.Close()) }()
		for range 8 {
			key := f.NewExporterKey()
			var all sync.WaitGroup
			var failed [2]error
			for i, s := range []*store.Store{f.Store, second} {
				all.Go(func() {
					failed[i] = s.PinCluster(t.Context(), f.AccountID, key.ID, fmt.Sprintf("cluster-%d", i))
				})
			}
			all.Wait()
			read, err := f.Store.APIKey(t.Context(), f.AccountID, key.ID)
			Must(t, err)
			for i, err := range failed {
				if won := read.ClusterUID == fmt.Sprintf("cluster-%d", i); won {
					Must(t, err)
				} else {
					MustCode(t, err, account.CodeScope)
				}
			}
		}
	},
	"exporter key: endpoints of others do not exist": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		lost := f.BindFor(session, Owner("api")).Endpoint
		f.EndSession(session)
		cloud := f.Cloud("http://shop.demo")
		cloud.Owner = Owner("shop")
		cloud.Owner.Kind = account.KindCloudEndpoint
		owned, plain := f.MakeCloud(cloud), f.MakeCloud(f.Cloud("http://plain.demo"))
		by := account.Caller{AccountID: f.AccountID, OwnerCluster: "another"}
		patch := account.EndpointPatch{Description: new("x")}
		for _, id := range []string{lost.ID, owned.ID, plain.ID} {
			_, err := f.Store.PatchEndpoint(t.Context(), by, id, patch, account.PolicyFacts{})
			MustCode(t, err, account.CodeNotFound)
			MustCode(t, f.Store.DeleteEndpoint(t.Context(), by, id), account.CodeNotFound)
		}
		by.OwnerCluster = clusterUID
		MustCode(t, f.Store.DeleteEndpoint(t.Context(), by, plain.ID), account.CodeNotFound)
		_, err := f.Store.PatchEndpoint(t.Context(), by, owned.ID, patch, account.PolicyFacts{})
		Must(t, err)
		for _, id := range []string{lost.ID, owned.ID} {
			Must(t, f.Store.DeleteEndpoint(t.Context(), by, id))
		}
		Equal(t, "left", len(f.List().Endpoints), 1)
	},
}

// live describes the credential if it is alive.
func (f *Fixture) live(id string) string {
	f.T.Helper()
	found, err := f.Store.LiveTunnelCredentials(f.ctx(), Uses(f.TokenID+"x", id, "ak-none"))
	Must(f.T, err)
	if c := found[account.CredentialUse{ID: id}]; c != nil && len(found) == 1 {
		return fmt.Sprint(c.ACL, c.IsAPIKey, " ", c.ClusterUID)
	}
	return ""
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clustertoken"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

const baseURL = "https://fairlead.example:8443"

// postgres is the server of this package's tests.
var postgres postgrestest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main{M: m, Shared: &postgres}) }

// fixture is a store whose account trusts the cluster prod, whose tokens signer makes, and the
// cluster staging, which has no subjects.
type fixture struct {
	*storetest.Fixture
	signer, neighbour *accounttest.TokenSigner
	cluster           *account.Cluster
	otherAccount      string
}

// onBoth runs a test on both engines.
func onBoth(t *testing.T, algorithm string, test func(t *testing.T, f *fixture)) {
	for name, open := range map[string]func(*testing.T) storetest.Open{
		"SQLite": func(t *testing.T) storetest.Open {
			dir := t.TempDir()
			return func(opt store.Options) (*store.Store, error) {
				opt.DataDir = dir
				return store.Open(context.WithoutCancel(t.Context()), opt)
			}
		},
		"PostgreSQL": func(t *testing.T) storetest.Open {
			url := postgres.Server(t).URL(t)
			return func(opt store.Options) (*store.Store, error) {
				opt.DatabaseURL = url
				return store.Open(context.WithoutCancel(t.Context()), opt)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{Fixture: storetest.NewFixture(t, open(t)),
				signer:    accounttest.NewTokenSigner(t, "k-1", algorithm),
				neighbour: accounttest.NewTokenSigner(t, "k-2", "ES256")}
			f.cluster = f.create("prod", f.signer)
			f.patch(f.create("staging", f.neighbour).ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{}})
			f.otherAccount, _ = f.NewAccount("other")
			test(t, f)
		})
	}
}

func (f *fixture) by() account.Caller { return account.Caller{AccountID: f.AccountID} }

func (f *fixture) create(name string, signer *accounttest.TokenSigner) *account.Cluster {
	f.T.Helper()
	p := storetest.ClusterPatch(f.T, name, "unused")
	set := signer.KeySet(f.T)
	p.JWKS = &set
	c, err := f.Store.CreateCluster(f.T.Context(), f.by(), p)
	storetest.Must(f.T, err)
	return c
}

func (f *fixture) patch(id string, p account.ClusterPatch) {
	f.T.Helper()
	_, err := f.Store.PatchCluster(f.T.Context(), f.by(), id, p)
	storetest.Must(f.T, err)
}

func (f *fixture) checker() *clustertoken.Checker {
	return clustertoken.New(clustertoken.Options{Store: f.Store, BaseURL: baseURL + "/", Clock: f.Clock.Now,
		Logger: slog.New(slog.DiscardHandler)})
}

func (f *fixture) audience() string { return account.TokenAudience(baseURL, f.AccountID) }

// claims returns the claims of a token of the exporter that was issued half a minute ago.
func (f *fixture) claims() map[string]any {
	return accounttest.Claims(f.audience(), "fairlead", "exporter", "u-1", f.Clock.Now().Add(-30*time.Second))
}

func (f *fixture) valid() string { return f.signer.Token(f.T, f.claims()) }

// tokenOf returns a token of another ServiceAccount.
func (f *fixture) tokenOf(name, uid string) string {
	return f.signer.Token(f.T, accounttest.Claims(f.audience(), "fairlead", name, uid, f.Clock.Now()))
}

func (f *fixture) json(v any) []byte {
	f.T.Helper()
	raw, err := json.Marshal(v)
	storetest.Must(f.T, err)
	return raw
}

// refusals returns the audit events of refused tokens, newest first.
func (f *fixture) refusals() []account.AuditEvent {
	f.T.Helper()
	page, err := f.Store.AuditEvents(f.T.Context(), f.AccountID, account.AuditFilter{Type: account.AuditTokenRefused},
		account.Page{Limit: 100})
	storetest.Must(f.T, err)
	return page.Events
}

// uses checks a token as the API and as the tunnel do, with a new checker for each.
func (f *fixture) uses(token string) map[string]error {
	_, asKey := f.checker().APIKey(f.T.Context(), token)
	_, asTunnel := f.checker().TunnelCredential(f.T.Context(), token)
	return map[string]error{"API": asKey, "tunnel": asTunnel}
}

func TestChecker_RefusesAttacks(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"ES256", "RS256"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			onBoth(t, algorithm, func(t *testing.T, f *fixture) {
				for use, err := range f.uses(f.valid()) { // pins the UID
					if err != nil {
						t.Fatalf("%s: the valid token: %v", use, err)
					}
				}
				for _, a := range attacks() {
					f.checkRefused(a)
				}
			})
		})
	}
}

// checkRefused checks the refusals of an attack, and the audit events about it.
func (f *fixture) checkRefused(a attack) {
	f.T.Helper()
	token, before := a.token(f), len(f.refusals())
	want := a.code
	if want == "" {
		want = account.CodeUnknownCredential
	}
	if strings.Contains(a.says, "kid \"") {
		want = account.CodeUnknownKey
	}
	for use, err := range f.uses(token) {
		if account.CodeOf(err) != want || !strings.Contains(err.Error(), a.says) {
			f.T.Errorf("%s, %s: %v (%s); want %s and %q", a.name, use, err, account.CodeOf(err), want, a.says)
		} else if len(token) > 20 && strings.Contains(err.Error(), token[:20]) {
			f.T.Errorf("%s, %s: the refusal shows the token: %v", a.name, use, err)
		}
	}
	events := f.refusals()
	if written := len(events) - before; written != map[bool]int{false: 2, true: 0}[a.quiet] {
		f.T.Errorf("%s: %d audit events", a.name, written)
	}
	if !a.quiet && !strings.Contains(events[0].Details["reason"], a.says) {
		f.T.Errorf("%s: audit event %v", a.name, events[0].Details)
	}
	if all := fmt.Sprint(events); len(token) > 20 && strings.Contains(all, token[:20]) {
		f.T.Errorf("%s: an audit event shows the token", a.name)
	}
}

func TestChecker_GivesRoles(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, f *fixture) {
		c, ctx := f.checker(), t.Context()
		key, err := c.APIKey(ctx, f.tokenOf("manager", "u-m"))
		storetest.Must(t, err)
		storetest.Equal(t, "manager", fmt.Sprint(key.ID == f.cluster.Subjects[0].ID, key.AccountID == f.AccountID,
			key.Scopes, key.ACL), "true true [operator] []")
		key, err = c.APIKey(ctx, f.tokenOf("exporter", "u-e"))
		storetest.Must(t, err)
		storetest.Equal(t, "exporter", fmt.Sprint(key.Scopes, key.ACL, key.OwnerCluster()),
			"[exporter] [export:* bind:*](none)")
		credential, err := c.TunnelCredential(ctx, f.tokenOf("exporter", "u-e"))
		storetest.Must(t, err)
		storetest.Equal(t, "exporter's tunnel", fmt.Sprint(credential.ACL, credential.IsAPIKey),
			"[export:* bind:*] true")
		credential, err = c.TunnelCredential(ctx, f.tokenOf("forwarder", "u-f"))
		storetest.Must(t, err)
		storetest.Equal(t, "forwarder's tunnel", fmt.Sprint(credential.ACL, credential.IsAPIKey), "[connect:*] false")
		_, err = c.TunnelCredential(ctx, f.tokenOf("manager", "u-m"))
		storetest.MustCode(t, err, account.CodeScope)
		_, err = c.APIKey(ctx, f.tokenOf("forwarder", "u-f"))
		storetest.MustCode(t, err, account.CodeScope)
		read, err := f.Store.Cluster(ctx, f.AccountID, f.cluster.ID)
		storetest.Must(t, err)
		storetest.Equal(t, "pinned", read.Subjects[0].UID+read.Subjects[1].UID+read.Subjects[2].UID, "u-mu-fu-e")
	})
}

func TestChecker_RefusesRemovedCredentials(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, f *fixture) {
		refused := func(what, says string) {
			t.Helper()
			f.checkRefused(attack{name: what, token: (*fixture).valid, says: says})
		}
		storetest.Must(t, f.uses(f.valid())["API"])
		next := accounttest.NewTokenSigner(t, "k-next", "ES256")
		set := next.KeySet(t)
		f.patch(f.cluster.ID, account.ClusterPatch{AddJWKS: &set})
		storetest.Must(t, f.uses(f.valid())["API"])
		f.patch(f.cluster.ID, account.ClusterPatch{RemoveKeys: []string{"k-1"}})
		refused("removed key", `kid "k-1"`)
		f.signer = next
		storetest.Must(t, f.uses(f.valid())["API"])
		exporter := account.SubjectPatch{Namespace: "fairlead", ServiceAccount: "exporter", Role: account.RoleExporter}
		exporter.UID = new("u-2")
		f.patch(f.cluster.ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{exporter}})
		refused("another UID", "deleted and made again")
		exporter.UID = new("")
		f.patch(f.cluster.ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{exporter}})
		storetest.Must(t, f.uses(f.valid())["API"])
		f.patch(f.cluster.ID, account.ClusterPatch{Subjects: &[]account.SubjectPatch{}})
		refused("deleted subject", "no subject of cluster prod")
		storetest.Must(t, f.Store.DeleteCluster(t.Context(), f.by(), f.cluster.ID))
		refused("deleted cluster", `kid "k-next"`)
	})
}

// TestChecker_KeepsAccountsApart checks a cluster that two accounts trust.
func TestChecker_KeepsAccountsApart(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, f *fixture) {
		p := storetest.ClusterPatch(t, "prod", "unused")
		set := f.signer.KeySet(t)
		p.JWKS = &set
		theirs, err := f.Store.CreateCluster(t.Context(), account.Caller{AccountID: f.otherAccount}, p)
		storetest.Must(t, err)
		claims := f.claims()
		claims["aud"] = account.TokenAudience(baseURL, f.otherAccount) // as text instead of a list
		key, err := f.checker().APIKey(t.Context(), f.signer.Token(t, claims))
		storetest.Must(t, err)
		storetest.Equal(t, "account", key.AccountID+key.ID, f.otherAccount+theirs.Subjects[2].ID)
		storetest.Must(t, f.Store.DeleteCluster(t.Context(), f.by(), f.cluster.ID))
		f.checkRefused(attack{name: "the other account trusts it still", token: (*fixture).valid, says: "kid \""})
	})
}

func TestChecker_AcceptsUntilExpiry(t *testing.T) {
	t.Parallel()
	onBoth(t, "RS256", func(t *testing.T, f *fixture) {
		token := f.valid()
		f.Clock.Step(time.Hour - 31*time.Second)
		storetest.Must(t, f.uses(token)["tunnel"])
		f.Clock.Step(time.Second)
		storetest.MustCode(t, f.uses(token)["tunnel"], account.CodeExpired)
		claims := f.claims()
		claims["nbf"] = f.Clock.Now().Add(time.Minute).Unix()
		claims["exp"] = f.Clock.Now().Add(-30*time.Second + account.MaxTokenLife).Unix()
		storetest.Must(t, f.uses(f.signer.Token(t, claims))["API"])
	})
}

// TestChecker_LimitsEvents checks that anyone can send tokens, and cannot fill the audit log.
func TestChecker_LimitsEvents(t *testing.T) {
	t.Parallel()
	onBoth(t, "ES256", func(t *testing.T, f *fixture) {
		c, garbage := f.checker(), f.valid()+"AAAA"
		for range 200 {
			_, err := c.APIKey(t.Context(), garbage)
			storetest.MustCode(t, err, account.CodeUnknownCredential)
		}
		storetest.Equal(t, "events", len(f.refusals()), 10)
		f.Clock.Step(time.Minute)
		_, err := c.APIKey(t.Context(), f.valid()+"AAAA")
		storetest.MustCode(t, err, account.CodeUnknownCredential)
		events := f.refusals()
		storetest.Equal(t, "events a minute later", len(events), 11)
		storetest.Equal(t, "event", fmt.Sprint(events[0].Details["skipped"], events[0].Object.ID == f.cluster.ID,
			events[0].Details["namespace"], events[0].Details["service_account"], events[0].Details["key_id"]),
			"190truefairleadexporterk-1")
	})
}

// FuzzChecker checks that no change of a token makes it one of another account, or ends a program.
func FuzzChecker(f *testing.F) {
	dir := f.TempDir()
	s, err := store.Open(f.Context(), store.Options{DataDir: dir})
	must.Succeed(f, err)
	f.Cleanup(func() { _ = s.Close() })
	owner, err := s.CreateAccount(f.Context(), "first")
	must.Succeed(f, err)
	signer := accounttest.NewTokenSigner(f, "k-1", "ES256")
	set, name := signer.KeySet(f), "prod"
	_, err = s.CreateCluster(f.Context(), account.Caller{AccountID: owner.ID}, account.ClusterPatch{Name: &name,
		JWKS: &set, Subjects: &[]account.SubjectPatch{
			{Namespace: "a", ServiceAccount: "b", Role: account.RoleOperator}}})
	must.Succeed(f, err)
	c := clustertoken.New(clustertoken.Options{Store: s, BaseURL: baseURL, Logger: slog.New(slog.DiscardHandler)})
	valid := signer.Token(f, accounttest.Claims(account.TokenAudience(baseURL, owner.ID), "a", "b", "u", time.Now()))
	for _, seed := range []string{valid, valid[:40], "ey.ey.", "eyJhbGciOiJub25lIn0.e30.", strings.ToUpper(valid)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		key, err := c.APIKey(t.Context(), token)
		switch {
		case err == nil && (key.AccountID != owner.ID || signedPart(token) != signedPart(valid)):
			t.Errorf("%q was accepted", token)
		case err != nil && account.CodeOf(err).Status() != 401:
			t.Errorf("%q: %v", token, err)
		}
	})
}

// signedPart returns a token without its signature.
func signedPart(token string) string { return token[:strings.LastIndex(token, ".")+1] }

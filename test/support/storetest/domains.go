// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// domains tests grants of public hosts, and endpoints whose grant is revoked.
var domains = map[string]func(*testing.T, Open){
	"grant: exact and wildcard hosts": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.grant(f.AccountID, "Example.com")
		f.grant(f.AccountID, "*.apps.test")
		session := f.Session()
		for _, url := range []string{"https://example.com", "http://example.com:8080", "https://a.apps.test",
			"https://a.b.c.apps.test"} {
			_, err := f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, url))
			Must(t, err)
		}
		for _, url := range []string{"https://www.example.com", "https://apps.test", "https://xapps.test",
			"https://a.apps.test.evil", "https://aexample.com"} {
			_, err := f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, url))
			MustCode(t, err, account.CodeInvalid)
		}
		got, err := f.Store.GrantedHosts(t.Context(), f.AccountID, []string{"example.com", "apps.test", "x.apps.test"})
		Must(t, err)
		Equal(t, "granted", got["example.com"], true)
		Equal(t, "not granted", got["apps.test"], false)
		Equal(t, "granted below", got["x.apps.test"], true)
	},
	"public host: one refusal for taken, ungranted and own": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.OwnHosts = []string{"api.example.com"} })
		other, _ := f.NewAccount("other")
		f.grant(other, "theirs.test")
		f.grant(f.AccountID, "*.example.com")
		theirs := f.RequestIn(account.BindingPublic, f.SessionIn(other), "https://theirs.test")
		theirs.AccountID = other
		_, err := f.Store.Bind(t.Context(), theirs)
		Must(t, err)
		session := f.Session()
		texts := map[string]bool{}
		for _, host := range []string{"theirs.test", "nobody.test", "api.example.com"} {
			_, err := f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, "https://"+host))
			MustCode(t, err, account.CodeInvalid)
			texts[strings.ReplaceAll(err.Error(), host, "HOST")] = true
		}
		Equal(t, "texts", len(texts), 1)
		_, err = f.Store.PublicEndpoint(t.Context(), "api.example.com", 443)
		MustCode(t, err, account.CodeNotFound)
	},
	"grants: not of the service's own hosts": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.OwnHosts = []string{"api.example.com", "tunnel.test"} })
		Must(t, f.Store.BeginServerTerm(t.Context()))
		command, err := open(store.Options{}) // as a command opens it, which does not know the URLs
		Must(t, err)
		defer func() { Must(t, command.Close()) }()
		for _, host := range []string{"api.example.com", "TUNNEL.test"} {
			_, err := command.GrantDomain(t.Context(), f.AccountID, host)
			MustCode(t, err, account.CodeInvalid)
			if !strings.Contains(err.Error(), "grant another host") {
				t.Errorf("no remedy: %v", err)
			}
		}
		for _, pattern := range []string{"*.api.example.com", "*.example.com", "www.test"} {
			_, err := command.GrantDomain(t.Context(), f.AccountID, pattern)
			Must(t, err)
		}
	},
	"grants: no overlap between accounts": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		f.grant(f.AccountID, "*.a.test")
		f.grant(f.AccountID, "host.b.test")
		f.grant(f.AccountID, "x.a.test") // one's own may
		for _, pattern := range []string{"*.a.test", "x.a.test", "y.x.a.test", "*.y.a.test", "*.test", "host.b.test",
			"*.b.test"} {
			_, err := f.Store.GrantDomain(t.Context(), other, pattern)
			MustCode(t, err, account.CodeInUse)
			if !strings.Contains(err.Error(), "account first") {
				t.Errorf("%s: %v does not name the account that has it", pattern, err)
			}
		}
		for _, pattern := range []string{"a.test", "xa.test", "b.test", "other.b.test", "*.host.b.test"} {
			f.grant(other, pattern)
		}
		all, err := f.Store.ListDomains(t.Context(), "")
		Must(t, err)
		Equal(t, "all", len(all), 8)
		mine, err := f.Store.ListDomains(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "mine", len(mine), 3)
		Equal(t, "sorted", slices.IsSortedFunc(all, func(a, b account.Domain) int {
			return strings.Compare(a.Pattern, b.Pattern)
		}), true)
	},
	"grants: idempotent, invalid ones refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.grant(f.AccountID, "*.a.test")
		f.Clock.Step(1e9)
		Equal(t, "again", f.grant(f.AccountID, "*.A.test").CreatedAt, first.CreatedAt)
		_, err := f.Store.GrantDomain(t.Context(), f.AccountID, "https://a.test")
		MustCode(t, err, account.CodeInvalid)
		_, err = f.Store.GrantDomain(t.Context(), "acc-nobody", "b.test")
		MustCode(t, err, account.CodeNotFound)
		other, _ := f.NewAccount("other")
		MustCode(t, f.Store.RevokeDomain(t.Context(), other, "*.a.test"), account.CodeNotFound)
		MustCode(t, f.Store.RevokeDomain(t.Context(), f.AccountID, "a.test"), account.CodeNotFound)
	},
	"grants: revocation takes endpoints offline": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.grant(f.AccountID, "*.a.test")
		f.grant(f.AccountID, "kept.a.test")
		session := f.Session()
		var ids []string
		for _, url := range []string{"https://app.a.test", "https://kept.a.test"} {
			got, err := f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, url))
			Must(t, err)
			ids = append(ids, got.Endpoint.ID)
		}
		f.Bind(session, "http://app.a") // other bindings have no grants
		found, err := f.Store.PublicEndpoint(t.Context(), "app.a.test", 443)
		Must(t, err)
		Equal(t, "endpoint", found.ID, ids[0])
		before := f.List().Version
		Must(t, f.Store.RevokeDomain(t.Context(), f.AccountID, "*.A.test"))
		_, err = f.Store.PublicEndpoint(t.Context(), "app.a.test", 443)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.PublicEndpoint(t.Context(), "kept.a.test", 443)
		Must(t, err)
		events := f.Since(before)
		Equal(t, "events", len(events), 1)
		Equal(t, "offline", events[0].Endpoint.ID+events[0].Endpoint.Status, ids[0]+account.StatusOffline)
		_, err = f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, "https://app.a.test"))
		MustCode(t, err, account.CodeInvalid)
		f.grant(f.AccountID, "app.a.test")
		again, err := f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, "https://app.a.test"))
		Must(t, err)
		Equal(t, "the endpoint that comes back", again.Endpoint.ID, ids[0])
	},
	"public endpoint: lookup by host and port": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.grant(f.AccountID, "*.a.test")
		session := f.Session()
		for _, b := range [][2]string{{account.BindingPublic, "https://app.a.test:8443"},
			{account.BindingInternal, "http://app.internal"}, {account.BindingKubernetes, "http://db.internal"}} {
			_, err := f.Store.Bind(t.Context(), f.RequestIn(b[0], session, b[1]))
			Must(t, err)
		}
		found, err := f.Store.PublicEndpoint(t.Context(), "app.a.test", 8443)
		Must(t, err)
		Equal(t, "url", found.URL, "https://app.a.test:8443")
		_, err = f.Store.Bind(t.Context(), f.RequestIn(account.BindingPublic, session, "http://app.a.test"))
		Must(t, err)
		found, err = f.Store.PublicEndpoint(t.Context(), "app.a.test", 443, 8443, 80)
		Must(t, err)
		Equal(t, "url at the first port", found.URL, "https://app.a.test:8443")
		for host, port := range map[string]int{"app.a.test": 443, "app.internal": 80, "db.internal": 80, "": 80} {
			_, err := f.Store.PublicEndpoint(t.Context(), host, port)
			MustCode(t, err, account.CodeNotFound)
		}
	},
	"public cloud endpoint: policy, online while granted": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		cloud := account.Endpoint{AccountID: f.AccountID, URL: "https://app.a.test", Scheme: "https",
			Host: "app.a.test",
			Port: 443, Bindings: []string{account.BindingPublic}, TrafficPolicy: "p"}
		MustCode(t, f.createCloud(cloud), account.CodeInvalid)
		f.grant(f.AccountID, "*.a.test")
		made := f.MakeCloud(cloud)
		found, err := f.Store.PublicEndpoint(t.Context(), "app.a.test", 443)
		Must(t, err)
		Equal(t, "policy", found.ID+found.TrafficPolicy, made.ID+"p")
		for _, c := range []struct {
			change func() error
			status string
		}{
			{func() error { return f.Store.RevokeDomain(t.Context(), f.AccountID, "*.a.test") }, account.StatusOffline},
			{func() error {
				_, err := f.Store.GrantDomain(t.Context(), f.AccountID, "app.a.test")
				return err
			}, made.Status},
		} {
			Must(t, c.change())
			got, err := f.Store.Endpoint(t.Context(), f.AccountID, made.ID)
			Must(t, err)
			Equal(t, "status", got.Status, c.status)
			Equal(t, "policy", got.TrafficPolicy, "p")
		}
	},
	"public bind of another scheme: refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.grant(f.AccountID, "app.a.test")
		session := f.Session()
		for _, b := range [][3]string{{account.BindingPublic, "https://app.a.test:8080", "http://app.a.test:8080"},
			{account.BindingInternal, "tcp://db.internal:80", "http://db.internal"}} {
			_, err := f.Store.Bind(t.Context(), f.RequestIn(b[0], session, b[1]))
			Must(t, err)
			_, err = f.Store.Bind(t.Context(), f.RequestIn(b[0], session, b[2]))
			MustCode(t, err, account.CodeURLTaken)
		}
	},
}

func (f *Fixture) grant(accountID, pattern string) *account.Domain {
	f.T.Helper()
	d, err := f.Store.GrantDomain(f.ctx(), accountID, pattern)
	Must(f.T, err)
	return d
}

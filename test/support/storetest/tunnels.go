// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// tunnels tests labelled tunnels, which end with their session.
var tunnels = map[string]func(t *testing.T, open Open){
	"tunnels/round trip":  tunnelRoundTrip,
	"tunnels/ends":        tunnelEnds,
	"tunnels/list":        tunnelList,
	"tunnels/broken":      tunnelBroken,
	"tunnels/limit":       tunnelLimit,
	"tunnels/not another": tunnelOfAnother,
	"tunnels/resume":      tunnelResume,
	"tunnels/asked twice": tunnelAskedTwice,
}

func (f *Fixture) tunnel(session string, labels map[string]string) *account.LabelledTunnel {
	f.T.Helper()
	got, _ := f.resumeTunnel(session, labels, account.TunnelResume{})
	return got
}

func (f *Fixture) resumeTunnel(
	session string, labels map[string]string, resume account.TunnelResume,
) (started *account.LabelledTunnel, replacedSessionID string) {
	f.T.Helper()
	started, replacedSessionID, err := f.Store.StartTunnel(f.ctx(),
		account.LabelledTunnel{AccountID: f.AccountID, TunnelSession: account.Ref{ID: session}, Labels: labels,
			Metadata: "m", ForwardsTo: "http://localhost:8080", UpstreamProtocol: "http1"}, resume)
	Must(f.T, err)
	return started, replacedSessionID
}

func (f *Fixture) tunnelIDs(labels map[string]string, p account.Page) string {
	f.T.Helper()
	page, more, err := f.Store.ListLabelledTunnels(f.ctx(), f.AccountID, labels, p)
	Must(f.T, err)
	var ids []string
	for _, t := range page {
		ids = append(ids, t.ID)
	}
	return fmt.Sprint(ids, more)
}

func tunnelRoundTrip(t *testing.T, open Open) {
	f := NewFixture(t, open)
	session := f.Session()
	made := f.tunnel(session, map[string]string{"app": "api", "site": "a"})
	Equal(t, "form of the id", account.ValidID(account.PrefixTunnel, made.ID), true)
	got, err := f.Store.LabelledTunnel(f.ctx(), f.AccountID, made.ID)
	Must(t, err)
	Equal(t, "what is read", fmt.Sprintf("%+v", *got), fmt.Sprintf("%+v", *made))
	Equal(t, "what was set", fmt.Sprint(got.Labels, got.Metadata, got.ForwardsTo, got.UpstreamProtocol, got.Region,
		got.StartedAt, got.TunnelSession.ID),
		fmt.Sprint("map[app:api site:a]", "m", "http://localhost:8080", "http1", "home", f.Clock.Now(), session))
}

func tunnelEnds(t *testing.T, open Open) {
	f := NewFixture(t, open)
	one, other := f.Session(), f.Session()
	labels := map[string]string{"app": "api"}
	stays := f.tunnel(other, labels)
	for name, end := range map[string]func(id string){
		"given back": func(id string) { Must(t, f.Store.EndTunnel(f.ctx(), f.AccountID, id, one)) },
		"lost":       func(string) { f.EndSession(one); one = f.Session() },
	} {
		id := f.tunnel(one, labels).ID
		Must(t, f.Store.EndTunnel(f.ctx(), f.AccountID, id, other)) // not its holder
		if _, err := f.Store.LabelledTunnel(f.ctx(), f.AccountID, id); err != nil {
			t.Fatalf("%s: ended by a session that does not hold it: %v", name, err)
		}
		end(id)
		_, err := f.Store.LabelledTunnel(f.ctx(), f.AccountID, id)
		MustCode(t, err, account.CodeNotFound)
		Equal(t, name+": the other's", f.tunnelIDs(nil, account.Page{}), fmt.Sprint([]string{stays.ID}, false))
	}
	f.Restart()
	Equal(t, "after a restart", f.tunnelIDs(nil, account.Page{}), "[] false")
	_, _, err := f.Store.StartTunnel(f.ctx(),
		account.LabelledTunnel{AccountID: f.AccountID, TunnelSession: account.Ref{ID: other}, Labels: labels},
		account.TunnelResume{})
	MustCode(t, err, account.CodeNotFound)
}

func tunnelList(t *testing.T, open Open) {
	f := NewFixture(t, open)
	session := f.Session()
	var ids []string
	for i := range 6 {
		f.Clock.Step(time.Second)
		ids = append([]string{f.tunnel(session, map[string]string{"app": "api", "site": string(rune('a' + i%2))}).ID},
			ids...)
	}
	for _, c := range []struct {
		labels map[string]string
		page   account.Page
		want   []string
		more   bool
	}{
		{nil, account.Page{}, ids, false},
		{nil, account.Page{Limit: 2}, ids[:2], true},
		{nil, account.Page{Limit: 4, BeforeID: ids[1]}, ids[2:], false},
		{map[string]string{"app": "api"}, account.Page{Limit: 6}, ids, false},
		{map[string]string{"site": "b"}, account.Page{Limit: 2}, []string{ids[0], ids[2]}, true},
		{map[string]string{"site": "b", "app": "api"}, account.Page{Limit: 2, BeforeID: ids[2]}, []string{ids[4]},
			false},
		{map[string]string{"site": "c"}, account.Page{}, nil, false},
		{map[string]string{"SITE": "b"}, account.Page{}, nil, false},
	} {
		Equal(t, fmt.Sprintf("%v %+v", c.labels, c.page), f.tunnelIDs(c.labels, c.page), fmt.Sprint(c.want, c.more))
	}
}

func tunnelBroken(t *testing.T, open Open) {
	f := NewFixture(t, open)
	session := f.Session()
	long := strings.Repeat("x", account.MaxLabel+1)
	many := map[string]string{}
	for i := range account.MaxLabels + 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	for _, labels := range []map[string]string{nil, {"": "v"}, {"k": ""}, {"k": long}, {long: "v"}, {"k k": "v"},
		{"k": "v\n"}, {"k": "*"}, {"a:b": "v"}, {"k": "ü"}, many} {
		_, _, err := f.Store.StartTunnel(f.ctx(),
			account.LabelledTunnel{AccountID: f.AccountID, TunnelSession: account.Ref{ID: session}, Labels: labels},
			account.TunnelResume{})
		MustCode(t, err, account.CodeInvalid)
		Equal(t, "field", account.FieldsOf(err)[0].Field, "labels")
	}
}

func tunnelLimit(t *testing.T, open Open) {
	f := NewFixture(t, open, func(o *store.Options) { o.MaxEndpoints = 1 })
	session := f.Session()
	f.tunnel(session, map[string]string{"app": "api"})
	_, _, err := f.Store.StartTunnel(f.ctx(),
		account.LabelledTunnel{AccountID: f.AccountID, TunnelSession: account.Ref{ID: session},
			Labels: map[string]string{"a": "b"}}, account.TunnelResume{})
	MustCode(t, err, account.CodeLimit)
}

func tunnelOfAnother(t *testing.T, open Open) {
	f := NewFixture(t, open)
	made := f.tunnel(f.Session(), map[string]string{"app": "api"})
	stranger, _ := f.NewAccount("second")
	_, err := f.Store.LabelledTunnel(f.ctx(), stranger, made.ID)
	MustCode(t, err, account.CodeNotFound)
	page, _, err := f.Store.ListLabelledTunnels(f.ctx(), stranger, nil, account.Page{})
	Must(t, err)
	Equal(t, "another account's list", len(page), 0)
	Must(t, f.Store.EndTunnel(f.ctx(), stranger, made.ID, made.TunnelSession.ID))
	Must(t, f.Store.EndSession(f.ctx(), stranger, made.TunnelSession.ID, account.SessionEnd{}))
	_, _, err = f.Store.StartTunnel(f.ctx(),
		account.LabelledTunnel{AccountID: stranger, TunnelSession: made.TunnelSession, Labels: made.Labels},
		account.TunnelResume{})
	MustCode(t, err, account.CodeNotFound)
	if _, err := f.Store.LabelledTunnel(f.ctx(), f.AccountID, made.ID); err != nil {
		t.Errorf("another account ended it: %v", err)
	}
}

func tunnelResume(t *testing.T, open Open) {
	f := NewFixture(t, open, func(o *store.Options) { o.MaxEndpoints = 2 })
	one, two := f.Session(), f.Session()
	labels := map[string]string{"app": "api"}
	secret := func(s string) account.TunnelResume { return account.TunnelResume{NewHash: account.HashSecret(s)} }
	old, _ := f.resumeTunnel(one, labels, secret("old"))
	kept, _ := f.resumeTunnel(one, labels, secret("kept"))
	resume := secret("new")
	f.Clock.Step(time.Second)
	resume.Secret = "old" // at the limit: the tunnel that it replaces does not count
	started, replaced := f.resumeTunnel(two, labels, resume)
	Equal(t, "session that held it", replaced, one)
	Equal(t, "tunnels", f.tunnelIDs(nil, account.Page{}), fmt.Sprint([]string{started.ID, kept.ID}, false))
	_, err := f.Store.LabelledTunnel(f.ctx(), f.AccountID, old.ID)
	MustCode(t, err, account.CodeNotFound)
	resume.Secret = "new"
	_, replaced = f.resumeTunnel(two, labels, resume)
	Equal(t, "session that replaces its own tunnel", replaced, "")
	Must(t, f.Store.EndTunnel(f.ctx(), f.AccountID, kept.ID, one))
	resume.Secret = "another"
	_, replaced = f.resumeTunnel(two, labels, resume)
	Equal(t, "session of a tunnel that is not there", replaced, "")

	stranger, _ := f.NewAccount("second")
	resume.Secret = "new"
	_, replaced, err = f.Store.StartTunnel(f.ctx(), account.LabelledTunnel{AccountID: stranger, Labels: labels,
		TunnelSession: account.Ref{ID: f.SessionIn(stranger)}}, resume)
	Must(t, err)
	Equal(t, "session of another account's tunnel", replaced, "")
}

// tunnelAskedTwice starts a tunnel whose secret the session has given to one already.
func tunnelAskedTwice(t *testing.T, open Open) {
	f := NewFixture(t, open)
	session, labels := f.Session(), map[string]string{"app": "api"}
	resume := account.TunnelResume{NewHash: account.HashSecret("flr_1")}
	first, _ := f.resumeTunnel(session, labels, resume)
	f.Clock.Step(time.Second)
	again, _ := f.resumeTunnel(session, labels, resume)
	Equal(t, "asked twice", fmt.Sprintf("%+v", *again), fmt.Sprintf("%+v", *first))
	other, _ := f.resumeTunnel(f.Session(), labels, resume)
	f.Clock.Step(time.Second) // ids of one moment have no order
	next, _ := f.resumeTunnel(session, labels, account.TunnelResume{NewHash: account.HashSecret("flr_2")})
	Equal(t, "tunnels", f.tunnelIDs(nil, account.Page{}), fmt.Sprint([]string{next.ID, other.ID, first.ID}, false))
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// differ compares endpoints in full.
func differ(a, b account.Endpoint) bool { return !reflect.DeepEqual(a, b) }

// events tests the event log: in order, without gaps, and "gone" once compacted.
var events = map[string]func(*testing.T, Open){
	"event log: folds to the list from any version": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start := f.List().Version
		versions := []account.ResourceVersion{start}
		sessions := []string{f.Session(), f.Session()}
		for i := range 12 {
			session := sessions[i%2]
			e := f.Bind(session, fmt.Sprintf("http://e%d.demo", i)).Endpoint
			if i%3 == 0 {
				Must(t, f.Store.Unbind(t.Context(), f.AccountID, e.ID, session))
			}
			versions = append(versions, f.List().Version)
		}
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, sessions[0], account.SessionEnd{}))
		all := f.Since(start)
		for i, e := range all {
			Equal(t, "sequence", e.ResourceVersion.Seq, start.Seq+int64(i)+1)
		}
		for _, v := range versions {
			if got := f.Since(v); !reflect.DeepEqual(got, all[v.Seq-start.Seq:]) {
				t.Fatalf("events after %s are no tail of the log", v)
			}
		}
		state := map[string]account.Endpoint{}
		for _, e := range all {
			if state[e.Endpoint.ID] = *e.Endpoint; e.Type == account.Deleted {
				delete(state, e.Endpoint.ID)
			}
		}
		list := f.List()
		Equal(t, "objects", len(list.Endpoints), len(state))
		for _, e := range list.Endpoints {
			e.AccountID, e.HostMode = "", ""
			if differ(e, state[e.ID]) {
				t.Fatalf("list has %+v, the log leads to %+v", e, state[e.ID])
			}
		}
	},
	"event log: limit, filter and version read to": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		v, session := f.List().Version, f.Session()
		for i := range 5 {
			f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
		}
		filter := account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}
		for want := v.Seq + 2; ; want += 2 {
			got, upTo, err := f.Store.EndpointEvents(t.Context(), f.AccountID, v, filter, 2)
			Must(t, err)
			if v = upTo; len(got) < 2 {
				break
			}
			Equal(t, "read to", upTo.Seq, want)
		}
		Equal(t, "end", v, f.List().Version)
		got, upTo, err := f.Store.EndpointEvents(t.Context(), f.AccountID, account.ResourceVersion{Epoch: v.Epoch},
			account.EndpointFilter{URL: "http://e3.demo"}, 100)
		Must(t, err)
		Equal(t, "filtered", len(got), 1)
		Equal(t, "read to", upTo, v)
		got, _, err = f.Store.EndpointEvents(t.Context(), f.AccountID, account.ResourceVersion{Epoch: v.Epoch},
			account.EndpointFilter{Bindings: []string{account.BindingPublic}}, 100)
		Must(t, err)
		Equal(t, "other binding", len(got), 0)
	},
	"event log: foreign and future versions gone": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		v := f.Bind(f.Session(), "http://api.demo").Endpoint.ResourceVersion
		for _, bad := range []account.ResourceVersion{{Epoch: v.Epoch + 1, Seq: v.Seq}, {Epoch: 0, Seq: v.Seq},
			{Epoch: v.Epoch, Seq: v.Seq + 1}} {
			_, _, err := f.Store.EndpointEvents(t.Context(), f.AccountID, bad, account.EndpointFilter{}, 10)
			MustCode(t, err, account.CodeGone)
		}
	},
	"event log: compacted after a day": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start, session := f.List().Version, f.Session()
		old := f.Bind(session, "http://a.demo").Endpoint.ResourceVersion
		f.Clock.Step(store.DefaultEventRetention - time.Minute)
		young := f.Bind(session, "http://b.demo").Endpoint.ResourceVersion
		Must(t, f.Store.Sweep(t.Context()))
		f.Expect(start, account.Added, account.Added)
		f.Clock.Step(time.Minute)
		Must(t, f.Store.Sweep(t.Context()))
		_, _, err := f.Store.EndpointEvents(t.Context(), f.AccountID, start, account.EndpointFilter{}, 10)
		MustCode(t, err, account.CodeGone)
		f.Expect(old, account.Added)
		f.Expect(young)
		f.Clock.Step(store.DefaultEventRetention)
		Must(t, f.Store.Sweep(t.Context()))
		f.Expect(young) // an empty log still knows its end
		f.Bind(session, "http://c.demo")
		f.Expect(young, account.Added)
	},
	"subscription: wakes the account after the commit": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		wake, cancel := f.Store.Subscribe(f.AccountID)
		defer cancel()
		elsewhere, cancelElsewhere := f.Store.Subscribe(other)
		defer cancelElsewhere()
		v, session := f.List().Version, f.Session()
		for i := range 3 {
			f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
		}
		<-wake
		Equal(t, "events at the wake-up", len(f.Since(v)), 3)
		select {
		case <-wake:
			t.Fatal("wake-ups were not coalesced")
		case <-elsewhere:
			t.Fatal("another account was woken")
		default:
		}
		_, err := f.Store.Bind(t.Context(), f.Request(f.Session(), "http://e0.demo"))
		MustCode(t, err, account.CodeURLTaken)
		cancel()
		f.Bind(session, "http://last.demo")
		select {
		case <-wake:
			t.Fatal("woken by a refusal, or after cancel")
		default:
		}
	},
	"endpoint pages: newest first, deleted position allowed": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		var ids []string
		for i := range 5 {
			f.Clock.Step(time.Millisecond)
			ids = append([]string{f.Bind(session, fmt.Sprintf("http://e%d.demo", i)).Endpoint.ID}, ids...)
		}
		var got []string
		for p := (account.Page{Limit: 2}); ; {
			page, err := f.Store.ListEndpoints(t.Context(), f.AccountID, account.EndpointFilter{}, p)
			Must(t, err)
			for _, e := range page.Endpoints {
				got = append(got, e.ID)
			}
			if p.BeforeID = got[len(got)-1]; !page.More {
				break
			}
		}
		Equal(t, "ids", fmt.Sprint(got), fmt.Sprint(ids))
		page, err := f.Store.ListEndpoints(t.Context(), f.AccountID, account.EndpointFilter{URL: "http://e1.demo"},
			account.Page{BeforeID: "zz"})
		Must(t, err)
		Equal(t, "filtered", len(page.Endpoints), 1)
		Equal(t, "store id", page.StoreID, f.Store.StoreID())
	},
}

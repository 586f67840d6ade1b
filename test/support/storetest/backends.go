// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// MakeBackend makes a backend of the first account.
func (f *Fixture) MakeBackend(kind account.BackendKind, p account.BackendPatch) *account.Backend {
	f.T.Helper()
	b, err := f.newBackend(f.AccountID, kind, p)
	Must(f.T, err)
	return b
}

func (f *Fixture) newBackend(
	accountID string, kind account.BackendKind, p account.BackendPatch,
) (*account.Backend, error) {
	b, err := p.Apply(account.Backend{AccountID: accountID, Kind: kind}, time.Time{})
	if err != nil {
		return nil, err
	}
	return f.Store.CreateBackend(f.ctx(), account.Caller{AccountID: b.AccountID}, b)
}

// Static makes a static backend.
func (f *Fixture) Static() *account.Backend {
	f.T.Helper()
	return f.MakeBackend(account.BackendStatic, account.BackendPatch{Address: new("db.example.com:5432")})
}

// Failover makes a failover backend of these children.
func (f *Fixture) Failover(children ...string) *account.Backend {
	f.T.Helper()
	return f.MakeBackend(account.BackendFailover, account.BackendPatch{Children: &children})
}

// HTTPResponse makes an http_response backend.
func (f *Fixture) HTTPResponse() *account.Backend {
	f.T.Helper()
	return f.MakeBackend(account.BackendHTTPResponse, account.BackendPatch{Body: new("down")})
}

// mustSay fails the test unless the error has the code and its text has the words.
func mustSay(t *testing.T, err error, code account.Code, words ...string) {
	t.Helper()
	MustCode(t, err, code)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("error %q does not say %q", err, w)
		}
	}
}

// everyKind are patches that make a backend of each kind; children is one that exists.
func everyKind(child string) map[account.BackendKind]account.BackendPatch {
	return map[account.BackendKind]account.BackendPatch{
		account.BackendFailover: {
			Children: &[]string{child}, HealthStatus: &[]int{503, 502, 503}, Description: new("d"), Metadata: new("m"),
			HealthRule: account.HealthRulePatch{
				WindowSeconds: new(30), MinAnswers: new(7), FailurePercent: new(60), MinClients: new(2),
			},
		},
		account.BackendWeighted:    {Weights: &map[string]int{child: 7}},
		account.BackendTunnelGroup: {Labels: &map[string]string{"app": "api", "site": "a"}},
		account.BackendHTTPResponse: {StatusCode: new(503), Headers: &map[string]string{"Content-Type": "text/plain"},
			Body: new("down")},
		account.BackendStatic: {Address: new("DB.example.com:5432"), TLS: new(true)},
	}
}

// backends tests backends and the rules of their tree.
var backends = map[string]func(*testing.T, Open){
	"every kind: stored, listed and found under its kind": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		child := f.Static()
		for kind, patch := range everyKind(child.ID) {
			f.Clock.Step(time.Millisecond) // newer than the child
			made := f.MakeBackend(kind, patch)
			if !account.ValidID(kind.IDPrefix(), made.ID) || made.CreatedAt != f.Clock.Now() ||
				made.UpdatedAt != made.CreatedAt || made.AccountID != f.AccountID {
				t.Fatalf("made %+v", made)
			}
			got, err := f.Store.Backend(t.Context(), f.AccountID, kind, made.ID)
			Must(t, err)
			page, _, err := f.Store.ListBackends(t.Context(), f.AccountID, kind, account.Page{})
			Must(t, err)
			tree, err := f.Store.BackendTree(t.Context(), f.AccountID, made.ID)
			Must(t, err)
			for name, other := range map[string]account.Backend{"read": *got, "listed": page[0],
				"of the tree": tree.All[made.ID]} {
				if !reflect.DeepEqual(other, *made) {
					t.Fatalf("%s: %+v, made %+v", name, other, *made)
				}
			}
			for _, other := range account.BackendKinds() {
				if other != kind {
					_, err := f.Store.Backend(t.Context(), f.AccountID, other, made.ID)
					MustCode(t, err, account.CodeNotFound)
				}
			}
		}
	},
	"pages of one kind: newest first": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		var want []string
		for range 5 {
			f.Clock.Step(time.Millisecond)
			child := f.Static().ID
			f.Clock.Step(time.Millisecond)
			want = append([]string{f.Failover(child).ID}, want...)
		}
		var got []string
		for p := (account.Page{Limit: 2}); ; {
			page, more, err := f.Store.ListBackends(t.Context(), f.AccountID, account.BackendFailover, p)
			Must(t, err)
			for _, b := range page {
				Equal(t, "children", len(b.Children), 1)
				got = append(got, b.ID)
			}
			if !more {
				break
			}
			p.BeforeID = got[len(got)-1]
		}
		Equal(t, "ids", fmt.Sprint(got), fmt.Sprint(want))
	},
	"backend: patch changes named fields only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one, two := f.Static(), f.Static()
		for kind, patch := range everyKind(one.ID) {
			made := f.MakeBackend(kind, patch)
			wake, cancel := f.Store.Subscribe(f.AccountID)
			f.Clock.Step(time.Minute)
			for _, same := range []account.BackendPatch{{}, patch} {
				got, err := f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, kind, made.ID,
					same)
				Must(t, err)
				if !reflect.DeepEqual(got, made) {
					t.Fatalf("%s: no difference made %+v of %+v", kind, got, made)
				}
			}
			select {
			case <-wake:
				t.Fatalf("%s: waiters were woken without a difference", kind)
			default:
			}
			got, err := f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, kind, made.ID,
				account.BackendPatch{Metadata: new("new")})
			Must(t, err)
			<-wake
			cancel()
			read, err := f.Store.Backend(t.Context(), f.AccountID, kind, made.ID)
			Must(t, err)
			want := *made
			want.Metadata, want.UpdatedAt = "new", f.Clock.Now()
			if !reflect.DeepEqual(*got, want) || !reflect.DeepEqual(*read, want) {
				t.Fatalf("%s: patched %+v, read %+v, want %+v", kind, got, read, want)
			}
		}
		group := f.Failover(one.ID, two.ID)
		got, err := f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendFailover,
			group.ID, account.BackendPatch{Children: &[]string{two.ID, one.ID}})
		Must(t, err)
		Equal(t, "order", strings.Join(got.Children, " "), two.ID+" "+one.ID)
		Equal(t, "events", len(f.Since(account.ResourceVersion{Epoch: f.List().Version.Epoch})), 0)
	},
	"backend: patch of an older state": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.Static()
		patch := func(metadata string, expected time.Time) (*account.Backend, error) {
			f.Clock.Step(time.Second)
			return f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, made.Kind, made.ID,
				account.BackendPatch{Metadata: &metadata, ExpectedUpdatedAt: &expected})
		}
		first, err := patch("first", made.UpdatedAt)
		Must(t, err)
		for _, same := range []string{"second", "first"} { // also one that changes nothing
			_, err = patch(same, made.UpdatedAt)
			Equal(t, "code", account.CodeOf(err), account.CodeChanged)
		}
		_, err = patch("second", first.UpdatedAt)
		Must(t, err)
	},
	"unknown and foreign children: same refusal": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		theirs, err := f.newBackend(other, account.BackendStatic, account.BackendPatch{Address: new("a:1")})
		Must(t, err)
		mine := f.Failover(f.Static().ID)
		var texts []string
		for _, id := range []string{theirs.ID, account.NewID("bkdst", f.Clock.Now()), "nonsense"} {
			_, err := f.newBackend(f.AccountID, account.BackendFailover, account.BackendPatch{Children: &[]string{id}})
			mustSay(t, err, account.CodeInvalid, "backends", "names no backend of this account")
			texts = append(texts, strings.ReplaceAll(err.Error(), id, "ID"))
			_, err = f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendFailover,
				mine.ID,
				account.BackendPatch{Children: &[]string{id}})
			Equal(t, "a patch says", strings.ReplaceAll(err.Error(), id, "ID"), texts[0])
			_, err = f.newBackend(f.AccountID, account.BackendWeighted,
				account.BackendPatch{Weights: &map[string]int{id: 1}})
			Equal(t, "a weighted one says", strings.ReplaceAll(err.Error(), id, "ID"), texts[0])
		}
		Equal(t, "one text", texts[0] == texts[1] && texts[1] == texts[2], true)
	},
	"backend tree: no cycle, depth limit": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		leaf := f.Static()
		two := f.Failover(leaf.ID)
		three := f.MakeBackend(account.BackendWeighted, account.BackendPatch{Weights: &map[string]int{two.ID: 1}})
		four := f.Failover(three.ID)
		_, err := f.newBackend(f.AccountID, account.BackendFailover,
			account.BackendPatch{Children: &[]string{leaf.ID, four.ID}})
		mustSay(t, err, account.CodeInvalid, "5 deep", "at most 4")
		patch := func(id string, child string) error {
			_, err := f.Store.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendFailover,
				id,
				account.BackendPatch{Children: &[]string{child}})
			return err
		}
		mustSay(t, patch(two.ID, four.ID), account.CodeInvalid, "leads back to "+two.ID)
		mustSay(t, patch(two.ID, two.ID), account.CodeInvalid, "leads back to "+two.ID)
		deep := f.Failover(f.Failover(leaf.ID).ID)
		mustSay(t, patch(two.ID, deep.ID), account.CodeInvalid, "6 deep") // what is above counts, too
		Must(t, patch(four.ID, deep.ID))
		Must(t, patch(two.ID, f.Static().ID))
	},
	"concurrent patches: no cycle": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		beside, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, beside.Close()) }()
		leaf := f.Static().ID
		for range 10 {
			a, b := f.Failover(leaf).ID, f.Failover(leaf).ID
			var all sync.WaitGroup
			errs := make([]error, 2)
			for i, pair := range [][2]string{{a, b}, {b, a}} {
				through := []*store.Store{f.Store, beside}[i]
				all.Go(func() {
					_, errs[i] = through.PatchBackend(t.Context(), account.Caller{AccountID: f.AccountID},
						account.BackendFailover,
						pair[0], account.BackendPatch{Children: &[]string{pair[1]}})
				})
			}
			all.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("one of two has to be refused: %v, %v", errs[0], errs[1])
			}
			for _, err := range errs {
				if err != nil {
					mustSay(t, err, account.CodeInvalid, "leads back to")
				}
			}
		}
	},
	"backend tree: every descendant once": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		leaf := f.Static()
		left, right := f.Failover(leaf.ID), f.MakeBackend(account.BackendWeighted,
			account.BackendPatch{Weights: &map[string]int{leaf.ID: 3}})
		root := f.Failover(left.ID, right.ID)
		f.Failover(root.ID)
		tree, err := f.Store.BackendTree(t.Context(), f.AccountID, root.ID)
		Must(t, err)
		Equal(t, "root", tree.Root, root.ID)
		Equal(t, "size", len(tree.All), 4)
		Equal(t, "children", strings.Join(tree.All[root.ID].Children, " "), left.ID+" "+right.ID)
		Equal(t, "weight", tree.All[right.ID].Weights[leaf.ID], 3)
		other, _ := f.NewAccount("other")
		_, err = f.Store.BackendTree(t.Context(), other, root.ID)
		MustCode(t, err, account.CodeNotFound)
	},
	"backend limit": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxBackends = 2 })
		f.Static()
		last := f.Static()
		_, err := f.newBackend(f.AccountID, account.BackendStatic, account.BackendPatch{Address: new("a:1")})
		mustSay(t, err, account.CodeLimit, "2 backends")
		Must(t, f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: f.AccountID}, account.BackendStatic,
			last.ID))
		f.Static()
		_, err = f.newBackend("ac-none", account.BackendStatic, account.BackendPatch{Address: new("a:1")})
		MustCode(t, err, account.CodeNotFound)
	},
	"backends of other accounts: not found": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		for kind, patch := range everyKind(f.Static().ID) {
			mine := f.MakeBackend(kind, patch)
			_, err := f.Store.Backend(t.Context(), other, kind, mine.ID)
			MustCode(t, err, account.CodeNotFound)
			_, err = f.Store.PatchBackend(t.Context(), account.Caller{AccountID: other}, kind, mine.ID,
				account.BackendPatch{Description: new("theirs")})
			MustCode(t, err, account.CodeNotFound)
			MustCode(t, f.Store.DeleteBackend(t.Context(), account.Caller{AccountID: other}, kind, mine.ID),
				account.CodeNotFound)
			page, _, err := f.Store.ListBackends(t.Context(), other, kind, account.Page{})
			Must(t, err)
			Equal(t, "listed", len(page), 0)
		}
	},
}

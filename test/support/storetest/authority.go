// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// authorities tests the certificate authority of the service.
var authorities = map[string]func(*testing.T, Open){
	"authority: the first of several callers' is stored": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		beside := f.openBeside(nil)
		certificate, key, err := f.Store.Authority(t.Context())
		Must(t, err)
		Equal(t, "authority of a new store", fmt.Sprint(certificate == nil, key == nil), "true true")
		var all sync.WaitGroup
		found := make([]string, 8)
		for i := range found {
			s := []*store.Store{f.Store, beside}[i%2]
			all.Go(func() {
				certificate, key, err := s.AddAuthority(context.WithoutCancel(t.Context()),
					fmt.Appendf(nil, "certificate %d", i), fmt.Appendf(nil, "key %d", i))
				if err != nil {
					t.Error(err)
				}
				found[i] = fmt.Sprintf("%s, %s", certificate, key)
			})
		}
		all.Wait()
		f.Restart()
		certificate, key, err = f.Store.Authority(t.Context())
		Must(t, err)
		for _, got := range found {
			Equal(t, "authority of a caller", got, fmt.Sprintf("%s, %s", certificate, key))
		}
		keyless := f.openBeside(func(o *store.Options) { o.Key = nil })
		certificate, _, _, err = keyless.AuthorityCertificates(t.Context())
		Must(t, err)
		Equal(t, "certificate without a key", string(certificate)+found[0][len(certificate):], found[0])
	},
	"authority: the next one replaces it without a trace of its key": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		ctx := t.Context()
		want := func(when, wanted string) {
			t.Helper()
			current, next, retiring, err := f.Store.AuthorityCertificates(ctx)
			Must(t, err)
			Equal(t, when, fmt.Sprintf("%s|%s|%s", current, next, retiring), wanted)
		}
		_, _, err := f.Store.AddAuthority(ctx, []byte("one"), []byte("key one"))
		Must(t, err)
		MustCode(t, f.openBeside(func(o *store.Options) { o.Key = nil }).AddNextAuthority(ctx, []byte("two"), nil),
			account.CodeInternal)
		Must(t, f.Store.AddNextAuthority(ctx, []byte("two"), []byte("key two")))
		want("with a next one", "one|two|")
		MustCode(t, f.Store.PromoteAuthority(ctx, []byte("another")), account.CodeInternal)
		keyless := f.openBeside(func(o *store.Options) { o.Key = nil })
		Must(t, keyless.PromoteAuthority(ctx, []byte("two")))
		want("promoted", "two||one")
		certificate, key, err := f.Store.Authority(ctx)
		Must(t, err)
		Equal(t, "the one in service", fmt.Sprintf("%s %s", certificate, key), "two key two")
		Must(t, f.Store.CheckKey(ctx))
		Must(t, keyless.RetireAuthority(ctx))
		want("retired", "two||")
	},
	"authority: servers report whom they have told": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		reports := func() string {
			all, err := f.Store.AuthorityReports(t.Context())
			Must(t, err)
			return fmt.Sprintf("%+v", all)
		}
		Equal(t, "before a report", reports(), "[{ServerID: Next: Untold:0 Sessions:[]}]")
		Must(t, f.Store.ReportAuthority(t.Context(), store.AuthorityReport{ServerID: "gone", Next: "ab", Untold: 9}))
		for untold := range 2 {
			Must(t, f.Store.ReportAuthority(t.Context(), store.AuthorityReport{Next: "ab", Untold: untold,
				Sessions: []string{"ts-1", "ts-2"}}))
		}
		Equal(t, "the last report", reports(), "[{ServerID: Next:ab Untold:1 Sessions:[ts-1 ts-2]}]")
	},
	"authority: opened by its secret key only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		Must(t, f.Store.CheckKey(t.Context()))
		_, _, err := f.Store.AddAuthority(t.Context(), []byte("certificate"), []byte("key"))
		Must(t, err)
		wrong, err := seal.New(bytes.Repeat([]byte{8}, seal.KeySize))
		Must(t, err)
		other := f.openBeside(func(o *store.Options) { o.Key = wrong })
		mustSay(t, other.CheckKey(t.Context()), account.CodeInvalid, "certificate authority is sealed",
			"--secret-key-file")
		_, _, err = other.Authority(t.Context())
		mustSay(t, err, account.CodeInternal, "DELETE FROM authority")
		keyless := f.openBeside(func(o *store.Options) { o.Key = nil })
		_, _, err = keyless.Authority(t.Context())
		MustCode(t, err, account.CodeInternal)
		_, _, err = keyless.AddAuthority(t.Context(), []byte("certificate"), []byte("key"))
		MustCode(t, err, account.CodeInternal)
		Must(t, f.Store.CheckKey(t.Context()))
	},
}

// openBeside opens the store of the fixture once more, with changed options.
func (f *Fixture) openBeside(change func(*store.Options)) *store.Store {
	f.T.Helper()
	opt := f.opt
	if change != nil {
		change(&opt)
	}
	s, err := f.open(opt)
	Must(f.T, err)
	f.T.Cleanup(func() { Must(f.T, s.Close()) })
	return s
}

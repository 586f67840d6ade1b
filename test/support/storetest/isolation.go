// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// isolation tests that nothing of one account is visible to another.
var isolation = map[string]func(*testing.T, Open){
	"isolation: same URL in two accounts": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, otherToken := f.NewAccount("other")
		mine := f.Bind(f.Session(), "http://api.demo").Endpoint
		theirs := f.SessionIn(other)
		r := f.Request(theirs, "http://api.demo")
		r.AccountID, r.CredentialID = other, otherToken
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		if got.Endpoint.ID == mine.ID {
			t.Fatal("two accounts share an id")
		}
		Equal(t, "my endpoints", len(f.List().Endpoints), 1)
		for _, e := range f.Since(account.ResourceVersion{Epoch: mine.ResourceVersion.Epoch}) {
			Equal(t, "id in my log", e.Endpoint.ID, mine.ID)
		}
		_, err = f.Store.Endpoint(t.Context(), f.AccountID, got.Endpoint.ID)
		MustCode(t, err, account.CodeNotFound)
		page, err := f.Store.ListEndpoints(t.Context(), f.AccountID, account.EndpointFilter{},
			account.Page{BeforeID: got.Endpoint.ID + "z"})
		Must(t, err)
		for _, e := range page.Endpoints {
			Equal(t, "id in a page", e.ID, mine.ID)
		}
	},
	"isolation: malformed ids not found": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Bind(f.Session(), "http://api.demo")
		for _, id := range []string{"", "ep-", "a\x00b", "\xff\xfe", "ep-'; --", strings.Repeat("x", 100_000)} {
			_, err := f.Store.Endpoint(t.Context(), f.AccountID, id)
			MustCode(t, err, account.CodeNotFound)
			_, err = f.Store.Endpoint(t.Context(), id, f.List().Endpoints[0].ID)
			MustCode(t, err, account.CodeNotFound)
			MustCode(t, f.Store.DeleteOperator(t.Context(), account.Caller{AccountID: f.AccountID}, id),
				account.CodeNotFound)
			_, err = f.Store.ListEndpoints(t.Context(), f.AccountID, account.EndpointFilter{URL: id},
				account.Page{BeforeID: id})
			Must(t, err)
		}
	},
	"isolation: objects of other accounts not found": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, otherToken := f.NewAccount("other")
		key, _, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
		Must(t, err)
		session := f.Session()
		e := f.Bind(session, "http://api.demo").Endpoint
		o, _, err := f.Store.UpsertOperator(t.Context(), anOperator(f.AccountID))
		Must(t, err)
		r := f.Request(session, "http://x.demo")
		r.AccountID, r.CredentialID = other, otherToken
		_, err = f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.TunnelSession(t.Context(), other, session)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.Operator(t.Context(), other, o.ID)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.PatchOperator(t.Context(), account.Caller{AccountID: other}, o.ID, account.OperatorPatch{})
		MustCode(t, err, account.CodeNotFound)
		MustCode(t, f.Store.DeleteOperator(t.Context(), account.Caller{AccountID: other}, o.ID), account.CodeNotFound)
		MustCode(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: other}, key.ID), account.CodeNotFound)
		MustCode(t, f.Store.DeleteAuthtoken(t.Context(), account.Caller{AccountID: other}, f.TokenID),
			account.CodeNotFound)
		Must(t, f.Store.Unbind(t.Context(), other, e.ID, session))
		Must(t, f.Store.EndSession(t.Context(), other, session, account.SessionEnd{}))
		Equal(t, "status", f.Endpoint(e.ID).Status, account.StatusOnline)
		same, created, err := f.Store.UpsertOperator(t.Context(), anOperator(other))
		Must(t, err)
		if !created || same.ID == o.ID {
			t.Fatal("two accounts share an operator")
		}
	},
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// credentials tests bootstrap and authentication: secrets are returned once and found by hash.
var credentials = map[string]func(*testing.T, Open){
	"bootstrap: once, of an empty store": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		_, created, err := f.Store.Bootstrap(t.Context())
		Must(t, err)
		Equal(t, "created on a store with an account", created, false)
	},
	"API keys: issue, authenticate, expire, delete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		expires := f.Clock.Now().Add(time.Hour)
		admin, adminSecret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "admin", nil, nil)
		Must(t, err)
		reader, readerSecret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "reader",
			[]account.Scope{account.ScopeRead}, &expires)
		Must(t, err)
		found, err := f.Store.APIKeyBySecret(t.Context(), readerSecret)
		Must(t, err)
		Equal(t, "found", found.ID, reader.ID)
		Equal(t, "scopes", fmt.Sprint(found.Scopes), "[read]")
		Equal(t, "account", found.AccountID, f.AccountID)
		MustCode(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, admin.ID),
			account.CodeInUse)

		f.Clock.Step(time.Hour)
		_, err = f.Store.APIKeyBySecret(t.Context(), readerSecret)
		MustCode(t, err, account.CodeExpired)
		ids := Uses(admin.ID, reader.ID, f.TokenID, "ak-none")
		alive, err := f.Store.LiveCredentials(t.Context(), ids)
		Must(t, err)
		Equal(t, "alive", fmt.Sprint(len(alive), alive[ids[0]], alive[ids[2]]), "2 true true")

		_, _, err = f.Store.IssueAPIKey(t.Context(), f.AccountID, "second", nil, nil)
		Must(t, err)
		Must(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, admin.ID))
		_, err = f.Store.APIKeyBySecret(t.Context(), adminSecret)
		MustCode(t, err, account.CodeUnknownCredential)
		MustCode(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, admin.ID),
			account.CodeNotFound)
		keys, err := f.Store.AllAPIKeys(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "keys", len(keys), 2)
	},
	"authtokens: issue, authenticate, delete": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		token, secret, err := f.Store.IssueAuthtoken(t.Context(), f.AccountID, "ci",
			[]string{"bind:HTTP://Api.Demo:80", "connect:*"})
		Must(t, err)
		found, err := f.Store.TunnelCredential(t.Context(), secret)
		Must(t, err)
		Equal(t, "acl", fmt.Sprint(found.ACL), "[bind:http://api.demo connect:*]")
		Equal(t, "may bind", found.ACL.MayBind("http://api.demo"), true)
		tokens, err := f.Store.AllAuthtokens(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "tokens", len(tokens), 2)
		Must(t, f.Store.DeleteAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID}, token.ID))
		_, err = f.Store.TunnelCredential(t.Context(), secret)
		MustCode(t, err, account.CodeUnknownCredential)
		MustCode(t, f.Store.DeleteAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID}, token.ID),
			account.CodeNotFound)
	},
	"authtokens: default rules bind only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		tokens, err := f.Store.AllAuthtokens(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "may", fmt.Sprint(tokens[0].ACL.MayBind("tcp://a.b:1"), tokens[0].ACL.MayConnect("op-1")),
			"true false")
	},
	"credentials: hint at the wrong kind": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		_, err := f.Store.APIKeyBySecret(t.Context(), "flt_x")
		MustCode(t, err, account.CodeWrongKind)
		_, err = f.Store.TunnelCredential(t.Context(), "flk_x") // it may be an exporter's
		MustCode(t, err, account.CodeUnknownCredential)
		for _, none := range []string{"", "x", "flk_", strings.Repeat("x", 10000)} {
			if _, err := f.Store.APIKeyBySecret(t.Context(), none); account.CodeOf(err).Status() != 401 {
				t.Fatalf("%v, want 401", err)
			}
		}
	},
	"bootstrap secrets: ensured at every start": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		key, token := account.NewSecret(account.APIKeyPrefix), account.NewSecret(account.AuthtokenPrefix)
		for _, want := range []bool{true, false} {
			created, err := f.Store.EnsureAPIKey(t.Context(), key)
			Must(t, err)
			Equal(t, "key created", created, want)
			created, err = f.Store.EnsureAuthtoken(t.Context(), token)
			Must(t, err)
			Equal(t, "token created", created, want)
			f.Restart()
		}
		found, err := f.Store.APIKeyBySecret(t.Context(), key)
		Must(t, err)
		Equal(t, "account", found.AccountID, f.AccountID)
		both, err := f.Store.TunnelCredential(t.Context(), token)
		Must(t, err)
		Equal(t, "rules", fmt.Sprint(both.ACL), "[bind:* connect:*]")
		for _, bad := range []string{"", "flk_short", token, "flk_" + strings.Repeat("ä", 40), key + "\n"} {
			_, err := f.Store.EnsureAPIKey(t.Context(), bad)
			MustCode(t, err, account.CodeInvalid)
			if bad != "" && strings.Contains(err.Error(), bad) {
				t.Errorf("error shows the secret: %v", err)
			}
		}
	},
	"administration: invalid arguments refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		past := f.Clock.Now()
		_, _, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", []account.Scope{"root"}, nil)
		MustCode(t, err, account.CodeInvalid)
		_, _, err = f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, &past)
		MustCode(t, err, account.CodeInvalid)
		_, _, err = f.Store.IssueAPIKey(t.Context(), "ac-none", "", nil, nil)
		MustCode(t, err, account.CodeNotFound)
		_, _, err = f.Store.IssueAuthtoken(t.Context(), f.AccountID, "", []string{"bind:ftp://a.b"})
		MustCode(t, err, account.CodeInvalid)
		_, err = f.Store.CreateAccount(t.Context(), "first")
		MustCode(t, err, account.CodeInUse)
		_, err = f.Store.CreateAccount(t.Context(), " ")
		MustCode(t, err, account.CodeInvalid)
		_, err = f.Store.AllAPIKeys(t.Context(), "ac-none")
		MustCode(t, err, account.CodeNotFound)
		accounts, err := f.Store.ListAccounts(t.Context())
		Must(t, err)
		Equal(t, "accounts", len(accounts), 1)
	},
}

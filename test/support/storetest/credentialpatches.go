// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// credentialPatches tests API keys and authtokens as the API creates and changes them.
var credentialPatches = map[string]func(*testing.T, Open){
	"API key: create, patch, read": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		until := f.Clock.Now().Add(time.Hour)
		made, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID},
			account.APIKeyPatch{Description: new("ci"), Metadata: new("m"),
				Scopes: &[]account.Scope{account.ScopeRead}, Expiry: account.ExpiryPatch{Set: true, At: &until}})
		Must(t, err)
		found, err := f.Store.APIKeyBySecret(t.Context(), *made.Token)
		Must(t, err)
		made.Token = nil
		Equal(t, "by its secret", fmt.Sprint(*found.ExpiresAt, found.ID, found.Metadata, found.Scopes),
			fmt.Sprint(until, made.ID, "m", "[read]"))
		f.Clock.Step(time.Minute)
		same, err := f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID,
			account.APIKeyPatch{Metadata: new("m")})
		Must(t, err)
		Equal(t, "no difference", same.Description, "ci")
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID,
			account.APIKeyPatch{Description: new("cd"), Scopes: &[]account.Scope{account.ScopeOperator},
				Expiry: account.ExpiryPatch{Set: true}})
		Must(t, err)
		read, err := f.Store.APIKey(t.Context(), f.AccountID, made.ID)
		Must(t, err)
		Equal(t, "after the patch", fmt.Sprint(read.Description, read.Metadata, read.Scopes, read.ExpiresAt,
			read.Token),
			"cdm[operator] <nil> <nil>")
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID,
			account.APIKeyPatch{Description: new("no"), Expiry: account.ExpiryPatch{Set: true, At: new(f.Clock.Now())}})
		MustCode(t, err, account.CodeInvalid)
		read, err = f.Store.APIKey(t.Context(), f.AccountID, made.ID)
		Must(t, err)
		Equal(t, "nothing half-written", read.Description, "cd")
	},
	"API key: last admin key kept": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
		Must(t, err)
		demote := account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeRead}}
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID, demote)
		MustCode(t, err, account.CodeInUse)
		soon := f.Clock.Now().Add(time.Minute)
		_, err = f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID},
			account.APIKeyPatch{Expiry: account.ExpiryPatch{Set: true, At: &soon}})
		Must(t, err)
		f.Clock.Step(time.Hour) // the second has expired
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID, demote)
		MustCode(t, err, account.CodeInUse)
		MustCode(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID),
			account.CodeInUse)
		other, _ := f.NewAccount("other")
		_, err = f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: other}, account.APIKeyPatch{})
		Must(t, err)
		// another account's is none
		MustCode(t, f.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID),
			account.CodeInUse)
		_, err = f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
		Must(t, err)
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, first.ID, demote)
		Must(t, err)
	},
	"authtoken: create, patch, read, expire": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		until := f.Clock.Now().Add(time.Hour)
		made, err := f.Store.CreateAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID},
			account.AuthtokenPatch{Metadata: new("m"), ACL: &[]string{"bind:HTTP://Api.Demo:80"},
				Expiry: account.ExpiryPatch{Set: true, At: &until}})
		Must(t, err)
		_, err = f.Store.PatchAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID,
			account.AuthtokenPatch{Description: new("d"), ACL: &[]string{"connect:*", "connect:*"}})
		Must(t, err)
		read, err := f.Store.Authtoken(t.Context(), f.AccountID, made.ID)
		Must(t, err)
		Equal(t, "after the patch", fmt.Sprint(read.Description, read.Metadata, read.ACL, *read.ExpiresAt, read.Token),
			fmt.Sprint("dm[connect:*] ", until, " <nil>"))
		for _, bad := range [][]string{{}, {"bind:ftp://a.b"}, {"rule"}} {
			_, err = f.Store.PatchAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID}, made.ID,
				account.AuthtokenPatch{ACL: &bad})
			MustCode(t, err, account.CodeInvalid)
		}
		ids := Uses(made.ID, f.TokenID, "cr-none")
		live, err := f.Store.LiveTunnelCredentials(t.Context(), ids)
		Must(t, err)
		Equal(t, "live", fmt.Sprint(len(live), live[ids[0]].ACL, live[ids[1]].ACL), "2 [connect:*] [bind:*]")
		f.Clock.Step(time.Hour)
		live, err = f.Store.LiveTunnelCredentials(t.Context(), ids)
		Must(t, err)
		alive, err := f.Store.LiveCredentials(t.Context(), ids)
		Must(t, err)
		Equal(t, "live after an hour", fmt.Sprint(len(live), live[ids[1]] != nil, len(alive), alive[ids[1]]),
			"1 true 1 true")
		_, err = f.Store.TunnelCredential(t.Context(), *made.Token)
		MustCode(t, err, account.CodeExpired)
	},
	"credentials: pages and limit": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxAPIKeys, o.MaxAuthtokens = 3, 3 })
		for range 3 {
			f.Clock.Step(time.Millisecond)
			_, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
			Must(t, err)
		}
		_, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
		MustCode(t, err, account.CodeLimit)
		page, more, err := f.Store.ListAPIKeys(t.Context(), f.AccountID, account.Page{Limit: 2})
		Must(t, err)
		rest, moreRest, err := f.Store.ListAPIKeys(t.Context(), f.AccountID,
			account.Page{Limit: 2, BeforeID: page[1].ID})
		Must(t, err)
		Equal(t, "pages", fmt.Sprint(len(page), more, len(rest), moreRest,
			page[0].ID > page[1].ID,
			page[1].ID > rest[0].ID), "2 true 1 false true true")
		for range 2 {
			_, err := f.Store.CreateAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID},
				account.AuthtokenPatch{})
			Must(t, err)
		}
		_, err = f.Store.CreateAuthtoken(t.Context(), account.Caller{AccountID: f.AccountID}, account.AuthtokenPatch{})
		MustCode(t, err, account.CodeLimit)
		tokens, more, err := f.Store.ListAuthtokens(t.Context(), f.AccountID, account.Page{Limit: 2})
		Must(t, err)
		Equal(t, "tokens", fmt.Sprint(len(tokens), more), "2 true")
	},
	"credentials: those of other accounts not found": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		key, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
		Must(t, err)
		_, err = f.Store.APIKey(t.Context(), other, key.ID)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.PatchAPIKey(t.Context(), account.Caller{AccountID: other}, key.ID,
			account.APIKeyPatch{Description: new("mine")})
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.Authtoken(t.Context(), other, f.TokenID)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.PatchAuthtoken(t.Context(), account.Caller{AccountID: other}, f.TokenID,
			account.AuthtokenPatch{Description: new("mine")})
		MustCode(t, err, account.CodeNotFound)
		keys, _, err := f.Store.ListAPIKeys(t.Context(), other, account.Page{BeforeID: key.ID + "z"})
		Must(t, err)
		tokens, _, err := f.Store.ListAuthtokens(t.Context(), other, account.Page{})
		Must(t, err)
		Equal(t, "theirs", fmt.Sprint(len(keys), len(tokens)), "0 1")
		unchanged, err := f.Store.APIKey(t.Context(), f.AccountID, key.ID)
		Must(t, err)
		Equal(t, "description", unchanged.Description, "")
		_, err = f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: "ac-none"}, account.APIKeyPatch{})
		MustCode(t, err, account.CodeNotFound)
	},
}

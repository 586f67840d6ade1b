// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The half of the fake that is about who may: identities, credentials, sign-ins.

func (f *fake) User(_ context.Context, accountID, id string) (*account.User, error) {
	return get(f, &f.users, userID, accountID, id)
}

func (f *fake) matches(u *account.User, filter account.UserFilter) bool {
	return (filter.Query == "" || contains(filter.Query, u.ID, u.Username, u.Email, u.Name, u.ProviderUserID,
		u.Provider.Name)) &&
		(filter.Provider == "" || contains(filter.Provider, u.Provider.Name)) &&
		(filter.UserID == "" || filter.UserID == u.ID) &&
		f.accessed(u.ID, filter.AccessFilter)
}

// accessed reports whether a session of the user, or with an endpoint alone an access, matches.
func (f *fake) accessed(userID string, filter account.AccessFilter) bool {
	if filter == (account.AccessFilter{Endpoint: filter.Endpoint}) {
		return filter.Endpoint == "" || slices.ContainsFunc(f.visited[userID],
			func(a account.AccessedEndpoint) bool { return contains(filter.Endpoint, a.URL) })
	}
	return slices.ContainsFunc(f.sessions, func(s account.AppSession) bool {
		return s.User.ID == userID && contains(filter.Endpoint, s.PublicURL) &&
			strings.HasPrefix(s.Device.IPAddress, filter.IP) &&
			(filter.Country == "" || s.Device.Location != nil && *s.Device.Location.CountryCode == filter.Country)
	})
}

func (f *fake) AccessChoices(_ context.Context, accountID string) (*account.AccessChoices, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	choices := &account.AccessChoices{}
	for _, s := range f.sessions {
		if f.owner[s.ID] == accountID && s.Device.Location != nil &&
			!slices.Contains(choices.Countries, *s.Device.Location.CountryCode) {
			choices.Countries = append(choices.Countries, *s.Device.Location.CountryCode)
		}
		if f.owner[s.ID] == accountID && !slices.Contains(choices.Endpoints, s.PublicURL) {
			choices.Endpoints = append(choices.Endpoints, s.PublicURL)
		}
	}
	slices.Sort(choices.Countries)
	slices.Sort(choices.Endpoints)
	return choices, nil
}

func (f *fake) Users(
	_ context.Context, accountID string, filter account.UserFilter, p account.Page,
) ([]account.User, bool, error) {
	if err := f.enter(); err != nil {
		return nil, false, err
	}
	defer f.mu.Unlock()
	passes := func(u *account.User) bool { return f.matches(u, filter) }
	if !filter.ByActivity {
		page, more := pageOf(f, f.users, userID, accountID, p, passes)
		return page, more, nil
	}
	page, _ := pageOf(f, f.users, userID, accountID, account.Page{Limit: len(f.users)}, passes)
	slices.SortStableFunc(page, func(a, b account.User) int { return b.LastActive.Compare(a.LastActive) })
	page = slices.DeleteFunc(page, func(u account.User) bool {
		return p.BeforeID != "" &&
			!u.LastActive.Before(filter.ActiveBefore)
	})
	return page[:min(p.Limit, len(page))], len(page) > p.Limit, nil
}

func (f *fake) AppSession(_ context.Context, accountID, id string) (*account.AppSession, error) {
	return get(f, &f.sessions, sessionID, accountID, id)
}

func (f *fake) AppSessions(
	_ context.Context, accountID string, filter account.AppSessionFilter, p account.Page,
) ([]account.AppSession, bool, error) {
	return list(f, &f.sessions, sessionID, accountID, p, func(s *account.AppSession) bool {
		return s.User.ID == filter.UserID
	})
}

func (f *fake) AccessedEndpoints(_ context.Context, _, userID string) ([]account.AccessedEndpoint, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	return f.visited[userID], nil
}

func (f *fake) IdentityProviders(_ context.Context, accountID string) ([]account.IdentityProvider, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	var all []account.IdentityProvider
	for _, u := range f.users {
		if f.owner[u.ID] == accountID && !slices.Contains(all, u.Provider) {
			all = append(all, u.Provider)
		}
	}
	slices.SortFunc(all, func(a, b account.IdentityProvider) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (f *fake) Revoke(
	_ context.Context, by account.Caller, sel account.RevokeSelector, _ string,
) (*account.Revocation, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	f.callers, f.revoked = append(f.callers, by), append(f.revoked, sel)
	done := &account.Revocation{At: f.now}
	if sel.UserID != "" {
		if err := remove(f, &f.users, userID, by.AccountID, sel.UserID); err != nil {
			return nil, err
		}
		done.UserIDs = []string{sel.UserID}
	} else if sel.SessionsOf != "" {
		if _, err := find(f, f.users, userID, by.AccountID, sel.SessionsOf); err != nil {
			return nil, err
		}
	} else if _, err := find(f, f.sessions, sessionID, by.AccountID, sel.SessionID); err != nil {
		return nil, err
	}
	f.sessions = slices.DeleteFunc(f.sessions, func(s account.AppSession) bool {
		gone := s.User.ID == sel.UserID || s.User.ID == sel.SessionsOf || s.ID == sel.SessionID
		if gone {
			done.SessionIDs = append(done.SessionIDs, s.ID)
		}
		return gone
	})
	return done, nil
}

func (f *fake) CreateAPIKey(_ context.Context, by account.Caller, p account.APIKeyPatch) (*account.APIKey, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	k, err := p.Apply(account.APIKey{ID: account.NewID(account.PrefixAPIKey, f.now), AccountID: by.AccountID,
		CreatedAt: f.now, Scopes: account.DefaultScopes()}, f.now)
	if err != nil {
		return nil, err
	}
	f.keys, f.owner[k.ID] = append(f.keys, k), by.AccountID
	secret := account.NewSecret(account.APIKeyPrefix)
	f.secrets[secret] = k.ID
	k.Token = &secret
	return &k, nil
}

func (f *fake) APIKey(_ context.Context, accountID, id string) (*account.APIKey, error) {
	return get(f, &f.keys, keyID, accountID, id)
}

func (f *fake) ListAPIKeys(
	_ context.Context, accountID string, p account.Page,
) (page []account.APIKey, more bool, err error) {
	return list(f, &f.keys, keyID, accountID, p, nil)
}

func (f *fake) DeleteAPIKey(_ context.Context, by account.Caller, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, err := find(f, f.keys, keyID, by.AccountID, id); err != nil {
		return err
	}
	others := slices.ContainsFunc(f.keys, func(k account.APIKey) bool {
		return k.ID != id && f.owner[k.ID] == by.AccountID && k.HasAnyScope() && k.Valid(f.now)
	})
	if !others {
		return account.Errorf(account.CodeInUse, "this is the account's last admin key; make another one first")
	}
	f.keys = slices.DeleteFunc(f.keys, func(k account.APIKey) bool { return k.ID == id })
	return nil
}

func (f *fake) CreateAuthtoken(
	_ context.Context, by account.Caller, p account.AuthtokenPatch,
) (*account.Authtoken, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	a, err := p.Apply(account.Authtoken{ID: account.NewID(account.PrefixCredential, f.now), AccountID: by.AccountID,
		CreatedAt: f.now, ACL: account.DefaultACL()}, f.now)
	if err != nil {
		return nil, err
	}
	f.tokens, f.owner[a.ID] = append(f.tokens, a), by.AccountID
	secret := account.NewSecret(account.AuthtokenPrefix)
	a.Token = &secret
	return &a, nil
}

func (f *fake) Authtoken(_ context.Context, accountID, id string) (*account.Authtoken, error) {
	return get(f, &f.tokens, authtokenID, accountID, id)
}

func (f *fake) ListAuthtokens(
	_ context.Context, accountID string, p account.Page,
) (page []account.Authtoken, more bool, err error) {
	return list(f, &f.tokens, authtokenID, accountID, p, nil)
}

func (f *fake) DeleteAuthtoken(_ context.Context, by account.Caller, id string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	return remove(f, &f.tokens, authtokenID, by.AccountID, id)
}

func (f *fake) APIKeyBySecret(_ context.Context, secret string) (*account.APIKey, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	if strings.HasPrefix(secret, account.AuthtokenPrefix) {
		return nil, account.Errorf(account.CodeWrongKind,
			"this is an authtoken, which is for agents; an API key begins with flk_")
	}
	for i := range f.keys {
		if f.keys[i].ID == f.secrets[secret] {
			key := f.keys[i]
			return &key, nil
		}
	}
	return nil, account.Errorf(account.CodeUnknownCredential, "the API key is not known")
}

func (f *fake) SignIn(_ context.Context, key *account.APIKey, hash []byte) (*account.DashboardSession, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	f.signIns[hex.EncodeToString(hash)] = signedIn{key.ID, f.now.Add(account.DashboardLife)}
	return &account.DashboardSession{Key: *key, ExpiresAt: f.now.Add(account.DashboardLife)}, nil
}

func (f *fake) DashboardSession(_ context.Context, hash []byte) (*account.DashboardSession, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	in, known := f.signIns[hex.EncodeToString(hash)]
	if known && in.expires.After(f.now) {
		for _, k := range f.keys {
			if k.ID == in.key && k.Valid(f.now) {
				return &account.DashboardSession{Key: k, ExpiresAt: in.expires}, nil
			}
		}
	}
	return nil, account.Errorf(account.CodeUnknownCredential, "you are not signed in")
}

func (f *fake) SignOut(_ context.Context, hash []byte) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	delete(f.signIns, hex.EncodeToString(hash))
	return nil
}

func ago(f *fake, d time.Duration) time.Time { return f.now.Add(-d) }

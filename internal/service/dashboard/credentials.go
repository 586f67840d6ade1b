// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// credential is an API key or an authtoken.
type credential struct {
	ID, Description string
	Rights          []string // scopes or rules
	Rules           []string // rules of an API key with the scope exporter
	Cluster         string   // cluster of such a key; "" = the first that presents it
	Created         time.Time
	Expires, Used   *time.Time
	State           string // see credentialState
	Own             bool   // the sign-in of the page is by it
}

// credentialKind is what differs between API keys and authtokens.
type credentialKind struct {
	path           string // path of the pages, below Path
	noun, title    string // singular; heading of the list
	rights         string // the name of their rights
	deletionEffect string
	deleted        string // code of the notice
	emptyForm      credentialForm

	list func(ctx context.Context, accountID string, p account.Page) ([]credential, bool, error)
	get  func(ctx context.Context, accountID, id string) (*credential, error)
	// create returns the credential that the form asks for, and its secret. CodeInvalid and
	// CodeLimit are shown in the form.
	create func(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, *string, error)
	remove func(ctx context.Context, by account.Caller, id string) error
}

func (s *server) credentialKinds() []credentialKind {
	return []credentialKind{s.apiKeys(), s.authtokens()}
}

func (s *server) apiKeys() credentialKind {
	show := func(k *account.APIKey) *credential {
		return &credential{ID: k.ID, Description: k.Description, Rights: scopeTexts(k.Scopes), Rules: k.ACL,
			Cluster: k.ClusterUID, Created: k.CreatedAt, Expires: k.ExpiresAt, Used: k.LastUsedAt,
			State: s.credentialState(k.ExpiresAt)}
	}
	return credentialKind{path: "api-keys", noun: "API key", title: "API keys", rights: "Scopes",
		deletionEffect: "Requests with it are refused at once; sign-ins to the dashboard and an exporter’s " +
			"sessions with it end.",
		deleted:   noticeKeyDeleted,
		emptyForm: credentialForm{Scopes: scopeChoices([]string{string(account.ScopeRead)})},
		remove:    s.opt.Store.DeleteAPIKey,
		list: func(ctx context.Context, accountID string, p account.Page) ([]credential, bool, error) {
			found, err := s.opt.Store.ListAPIKeys(ctx, accountID, p)
			if err != nil {
				return nil, false, err
			}
			return showAll(found.Keys, show), found.More, nil
		},
		get: func(ctx context.Context, accountID, id string) (*credential, error) {
			k, err := s.opt.Store.APIKey(ctx, accountID, id)
			if err != nil {
				return nil, err
			}
			return show(k), nil
		},
		create: func(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, *string, error) {
			scopes := []account.Scope{}
			for _, given := range c.Request.PostForm["scopes"] {
				scopes = append(scopes, account.Scope(given))
			}
			patch := account.APIKeyPatch{Description: &form.Description, Scopes: &scopes, ClusterUID: &form.ClusterUID,
				Expiry: expiry}
			if acl := strings.Fields(form.ACL); len(acl) > 0 {
				patch.ACL = &acl
			}
			if _, err := patch.Apply(account.APIKey{}, s.opt.Clock()); err != nil {
				return nil, nil, err
			}
			k, err := s.opt.Store.CreateAPIKey(c.Context(), c.Caller(), patch)
			if err != nil {
				return nil, nil, err
			}
			return show(k), k.Token, nil
		},
	}
}

func (s *server) authtokens() credentialKind {
	show := func(a *account.Authtoken) *credential {
		return &credential{ID: a.ID, Description: a.Description, Rights: a.ACL, Created: a.CreatedAt,
			Expires: a.ExpiresAt, Used: a.LastUsedAt, State: s.credentialState(a.ExpiresAt)}
	}
	return credentialKind{path: "authtokens", noun: "authtoken", title: "Authtokens", rights: "Rules",
		deletionEffect: "Agents and forwarders that connected with it are cut off within a second.",
		deleted:        noticeAuthtokenDeleted,
		emptyForm:      credentialForm{ACL: strings.Join(account.DefaultACL(), "\n")},
		remove:         s.opt.Store.DeleteAuthtoken,
		list: func(ctx context.Context, accountID string, p account.Page) ([]credential, bool, error) {
			found, err := s.opt.Store.ListAuthtokens(ctx, accountID, p)
			if err != nil {
				return nil, false, err
			}
			return showAll(found.Authtokens, show), found.More, nil
		},
		get: func(ctx context.Context, accountID, id string) (*credential, error) {
			a, err := s.opt.Store.Authtoken(ctx, accountID, id)
			if err != nil {
				return nil, err
			}
			return show(a), nil
		},
		create: func(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, *string, error) {
			acl := strings.Fields(form.ACL)
			patch := account.AuthtokenPatch{Description: &form.Description, ACL: &acl, Expiry: expiry}
			if _, err := patch.Apply(account.Authtoken{}, s.opt.Clock()); err != nil {
				return nil, nil, err
			}
			a, err := s.opt.Store.CreateAuthtoken(c.Context(), c.Caller(), patch)
			if err != nil {
				return nil, nil, err
			}
			return show(a), a.Token, nil
		},
	}
}

func showAll[T any](objects []T, show func(*T) *credential) []credential {
	var all []credential
	for i := range objects {
		all = append(all, *show(&objects[i]))
	}
	return all
}

func scopeTexts(scopes []account.Scope) []string {
	texts := make([]string, len(scopes))
	for i, scope := range scopes {
		texts[i] = string(scope)
	}
	return texts
}

// expiryWarning is how long before its end a credential is shown as a problem.
const expiryWarning = 7 * 24 * time.Hour

// stateExpiring is the state of a credential that ends within expiryWarning.
const stateExpiring = "expires soon"

// credentialState returns "expired", stateExpiring, or "" for a credential that lasts.
func (s *server) credentialState(expires *time.Time) string {
	if expires == nil {
		return ""
	}
	switch left := expires.Sub(s.opt.Clock()); {
	case left <= 0:
		return "expired"
	case left < expiryWarning:
		return stateExpiring
	}
	return ""
}

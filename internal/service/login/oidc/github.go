// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
)

// gitHub is GitHub or a GitHub Enterprise Server: OAuth 2.0, and its REST API for the person's
// identity. It cannot ask for the password again, and has no auth_time.
type gitHub struct {
	settings
	url, api string
}

var _ login.CallbackProvider = (*gitHub)(nil)

func newGitHub(s settings) *gitHub {
	g := &gitHub{settings: s, url: "https://github.com", api: "https://api.github.com"}
	if own := strings.TrimSuffix(s.config.IssuerURL, "/"); own != "" && own != g.url {
		g.url, g.api = own, own+"/api/v3"
	}
	return g
}

func (g *gitHub) client(action login.Action) *oauth2.Config {
	e := oauth2.Endpoint{AuthURL: g.url + "/login/oauth/authorize", TokenURL: g.url + "/login/oauth/access_token",
		AuthStyle: oauth2.AuthStyleInParams}
	return g.oauth(action, e, g.scopes([]string{"read:user", "user:email"}, ""))
}

// Scope implements login.Provider.
func (g *gitHub) Scope() string { return g.scope(g.url) }

// StartFlow implements login.Provider.
func (g *gitHub) StartFlow(_ context.Context, f *login.Flow, action login.Action) (login.Redirect, error) {
	params := g.params(f)
	if f.ForceReauth {
		// GitHub cannot ask for the password
		params = append(params, oauth2.SetAuthURLParam("prompt", "select_account"))
	}
	return login.Redirect{URL: g.client(action).AuthCodeURL(f.State, params...)}, nil
}

// HandleCallback implements login.CallbackProvider.
func (g *gitHub) HandleCallback(
	ctx context.Context, r *http.Request, f *login.Flow, action login.Action,
) (*login.Authentication, error) {
	code, err := callbackCode(r.URL.Query())
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, g.settings.client)
	token, err := g.client(action).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return nil, exchangeError(err)
	}
	var user struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
		Name  string `json:"name"`
	}
	if err := g.get(ctx, token, "/user", &user); err != nil {
		return nil, login.ProviderError(err)
	}
	if user.ID <= 0 {
		return nil, login.ProviderError(fmt.Errorf("%s/user has no id", g.api))
	}
	id := strconv.FormatInt(user.ID, 10)
	email, err := g.email(ctx, token)
	if err != nil {
		return nil, login.ProviderError(err)
	}
	return &login.Authentication{Authentication: account.Authentication{
		Key:      strings.Join([]string{"github", g.url, id}, "\x00"),
		Provider: account.IdentityProvider{Name: "GitHub", URL: g.url},
		Identity: account.LoginIdentity{ProviderUserID: id, Username: limitText(user.Login), Name: limitText(user.Name),
			Email: limitText(email)},
	}}, nil
}

// email returns the person's primary address if it is verified; "" without the permission to ask.
func (g *gitHub) email(ctx context.Context, token *oauth2.Token) (string, error) {
	var all []struct {
		Email    string `json:"email"`
		Primary  bool   `json:"primary"`
		Verified bool   `json:"verified"`
	}
	if err := g.get(ctx, token, "/user/emails", &all); err != nil {
		return "", err
	}
	for _, e := range all {
		if e.Primary && e.Verified {
			return e.Email, nil
		}
	}
	return "", nil
}

// get calls the REST API. Without the permission, it leaves into as it is.
func (g *gitHub) get(ctx context.Context, token *oauth2.Token, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.api+path, nil)
	if err != nil {
		return fmt.Errorf("asking GitHub: %w", err)
	}
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("User-Agent", "fairlead")
	r.Header.Set("X-Github-Api-Version", "2022-11-28")
	r.Header.Set("Authorization", "Bearer "+token.AccessToken)
	res, err := g.settings.client.Do(r)
	if err != nil {
		return fmt.Errorf("asking GitHub: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case path == "/user/emails" && (res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusNotFound):
		return nil
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("asking GitHub for %s: status %d", path, res.StatusCode)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("reading GitHub's %s: %w", path, err)
	}
	return nil
}

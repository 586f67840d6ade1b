// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// credentialKind is one of the two kinds of credentials; its text is the path of their pages.
type credentialKind string

const (
	kindAPIKeys    credentialKind = "api-keys"
	kindAuthtokens credentialKind = "authtokens"
)

// soon is how long before its end a credential is pointed out.
const soon = 7 * 24 * time.Hour

// credentialState says how a credential stands, "" while there is nothing to say.
func (s *server) credentialState(expires *time.Time) string {
	if expires == nil {
		return ""
	}
	switch left := expires.Sub(s.opt.Clock()); {
	case left <= 0:
		return "expired"
	case left < soon:
		return "expires soon"
	}
	return ""
}

// lifetimes are what a new credential may last, in the order of the form.
var lifetimes = []lifetime{{"", "Never", 0}, {"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour},
	{"90d", "90 days", 90 * 24 * time.Hour}, {"365d", "1 year", 365 * 24 * time.Hour}}

type lifetime struct {
	Value, Text string
	Duration    time.Duration
}

// expiry reads the lifetime that was chosen.
func (c *call) expiry() (account.ExpiryPatch, string, error) {
	given := c.Request.PostForm.Get("expires")
	for _, l := range lifetimes {
		if l.Value == given && l.Duration > 0 {
			at := c.server.opt.Clock().Add(l.Duration)
			return account.ExpiryPatch{Set: true, At: &at}, given, nil
		} else if l.Value == given {
			return account.ExpiryPatch{}, given, nil
		}
	}
	return account.ExpiryPatch{}, "", account.Invalid("expires", account.Shorten(given),
		"choose one of the lifetimes of the form")
}

type credentialRow struct {
	ID, Description string
	Rights          []string
	Created         time.Time
	Expires, Used   *time.Time
	State           string
	Own             bool // the one that is signed in
}

type credentialsPage struct {
	Rows  []credentialRow
	Pager pager
}

func (s *server) apiKeys(c *call) error {
	found, err := s.opt.Store.ListAPIKeys(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	p, last := credentialsPage{}, ""
	for _, k := range found.Keys {
		rights := make([]string, len(k.Scopes))
		for i, scope := range k.Scopes {
			rights[i] = string(scope)
		}
		p.Rows = append(p.Rows, credentialRow{k.ID, k.Description, rights, k.CreatedAt, k.ExpiresAt, k.LastUsedAt,
			s.credentialState(k.ExpiresAt), k.ID == c.Key.ID})
		last = k.ID
	}
	p.Pager = c.pagerOf(len(p.Rows), found.More, last, nil)
	return c.show(http.StatusOK, view{Page: string(kindAPIKeys), Title: "API keys", Nav: string(kindAPIKeys),
		Live: "audit", Poll: true, Data: p})
}

func (s *server) authtokens(c *call) error {
	found, err := s.opt.Store.ListAuthtokens(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	p, last := credentialsPage{}, ""
	for _, a := range found.Authtokens {
		p.Rows = append(p.Rows, credentialRow{a.ID, a.Description, a.ACL, a.CreatedAt, a.ExpiresAt, a.LastUsedAt,
			s.credentialState(a.ExpiresAt), false})
		last = a.ID
	}
	p.Pager = c.pagerOf(len(p.Rows), found.More, last, nil)
	return c.show(http.StatusOK, view{Page: string(kindAuthtokens), Title: "Authtokens", Nav: string(kindAuthtokens),
		Live: "audit", Poll: true, Data: p})
}

// credentialForm is the form for a new credential, and the answer to it.
type credentialForm struct {
	Description string
	Expires     string
	Lifetimes   []lifetime
	Scopes      []scopeChoice
	ACL         string
	Problems    map[string]string // by field
	Other       string            // a problem of no field

	Made   bool
	Secret string // this once
	ID     string
	Rights []string
	Until  *time.Time
}

type scopeChoice struct {
	Scope   account.Scope
	May     string
	Checked bool
}

func scopeChoices(given []string) []scopeChoice {
	may := map[account.Scope]string{
		account.ScopeAdmin: "everything", account.ScopeRead: "see everything, change nothing",
		account.ScopeOperator:   "what a Kubernetes operator needs",
		account.ScopeIdentities: "see and revoke identities, nothing else",
	}
	var all []scopeChoice
	for _, scope := range account.Scopes() {
		choice := scopeChoice{Scope: scope, May: may[scope]}
		for _, g := range given {
			choice.Checked = choice.Checked || g == string(scope)
		}
		all = append(all, choice)
	}
	return all
}

func (s *server) newAPIKey(c *call) error {
	return c.showForm(http.StatusOK, kindAPIKeys,
		credentialForm{Scopes: scopeChoices([]string{string(account.ScopeRead)})})
}

func (s *server) newAuthtoken(c *call) error {
	return c.showForm(http.StatusOK, kindAuthtokens, credentialForm{ACL: strings.Join(account.DefaultACL(), "\n")})
}

func (c *call) showForm(status int, kind credentialKind, form credentialForm) error {
	form.Lifetimes = lifetimes
	what, list := "API key", "API keys"
	if kind == kindAuthtokens {
		what, list = "authtoken", "Authtokens"
	}
	title := "New " + what
	if form.Made {
		title = "The new " + what
	}
	return c.show(status, view{Page: strings.TrimSuffix(string(kind), "s") + "-new", Title: title, Nav: string(kind),
		Crumb: &link{list, Path + string(kind)}, Data: form})
}

// showProblems shows the form again with what was wrong about it, and with what was typed.
func (c *call) showProblems(kind credentialKind, form credentialForm, err error) error {
	var known *account.Error
	if !errors.As(err, &known) || known.Code != account.CodeInvalid && known.Code != account.CodeLimit {
		return err
	}
	form.Problems = map[string]string{}
	for _, f := range known.Fields {
		field, _, _ := strings.Cut(f.Field, "[")
		text := sentence(f.Rule)
		if f.Field == "acl" && f.Value != "" {
			text = "“" + f.Value + "” " + strings.TrimSuffix(f.Rule, ".") + "."
		}
		form.Problems[field] = strings.TrimSpace(form.Problems[field] + " " + text)
	}
	if len(known.Fields) == 0 {
		form.Other = sentence(known.Msg)
	}
	return c.showForm(known.Code.Status(), kind, form)
}

func (s *server) createAPIKey(c *call) error {
	given := c.Request.PostForm["scopes"]
	form := credentialForm{Description: c.Request.PostForm.Get("description"), Scopes: scopeChoices(given)}
	scopes := make([]account.Scope, len(given))
	for i, g := range given {
		scopes[i] = account.Scope(g)
	}
	patch := account.APIKeyPatch{Description: &form.Description, Scopes: &scopes}
	var err error
	if patch.Expiry, form.Expires, err = c.expiry(); err == nil {
		_, err = patch.Apply(account.APIKey{}, s.opt.Clock())
	}
	if err != nil {
		return c.showProblems(kindAPIKeys, form, err)
	}
	made, err := s.opt.Store.CreateAPIKey(c.Context(), c.Caller(), patch)
	if err != nil {
		return c.showProblems(kindAPIKeys, form, err)
	}
	form.Made, form.ID, form.Until = true, made.ID, made.ExpiresAt
	form.Rights = []string{httpkit.JoinScopes(made.Scopes, ", ")}
	if made.Token != nil {
		form.Secret = *made.Token
	}
	return c.showForm(http.StatusCreated, kindAPIKeys, form)
}

func (s *server) createAuthtoken(c *call) error {
	form := credentialForm{Description: c.Request.PostForm.Get("description"), ACL: c.Request.PostForm.Get("acl")}
	acl := strings.Fields(form.ACL)
	patch := account.AuthtokenPatch{Description: &form.Description, ACL: &acl}
	var err error
	if patch.Expiry, form.Expires, err = c.expiry(); err == nil {
		_, err = patch.Apply(account.Authtoken{}, s.opt.Clock())
	}
	if err != nil {
		return c.showProblems(kindAuthtokens, form, err)
	}
	made, err := s.opt.Store.CreateAuthtoken(c.Context(), c.Caller(), patch)
	if err != nil {
		return c.showProblems(kindAuthtokens, form, err)
	}
	form.Made, form.ID, form.Until, form.Rights = true, made.ID, made.ExpiresAt, made.ACL
	if made.Token != nil {
		form.Secret = *made.Token
	}
	return c.showForm(http.StatusCreated, kindAuthtokens, form)
}

func (s *server) confirmDeleteAPIKey(c *call) error {
	k, err := s.opt.Store.APIKey(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	effect := "Whoever uses it is refused at once, and what is signed in to the dashboard with it is signed out."
	if k.ID == c.Key.ID {
		effect += " This is the key that you are signed in with."
	}
	return c.confirm(string(kindAPIKeys), link{"API keys", Path + string(kindAPIKeys)}, confirmation{
		Question: "Delete this API key?", Facts: []fact{{"Description", orDash(k.Description)}, {"Id", k.ID},
			{"Scopes", httpkit.JoinScopes(k.Scopes, ", ")}},
		Effect: effect, Verb: "Delete API key", Busy: "Deleting", Back: Path + string(kindAPIKeys), Danger: true,
	})
}

func (s *server) deleteAPIKey(c *call) error {
	if err := s.opt.Store.DeleteAPIKey(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(Path+string(kindAPIKeys), notice{Code: noticeKeyGone})
}

func (s *server) confirmDeleteAuthtoken(c *call) error {
	a, err := s.opt.Store.Authtoken(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	return c.confirm(string(kindAuthtokens), link{"Authtokens", Path + string(kindAuthtokens)}, confirmation{
		Question: "Delete this authtoken?", Facts: []fact{{"Description", orDash(a.Description)}, {"Id", a.ID},
			{"Rules", strings.Join(a.ACL, ", ")}},
		Effect: "Agents and forwarders that connected with it are cut off within a second.",
		Verb:   "Delete authtoken", Busy: "Deleting", Back: Path + string(kindAuthtokens), Danger: true,
	})
}

func (s *server) deleteAuthtoken(c *call) error {
	if err := s.opt.Store.DeleteAuthtoken(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(Path+string(kindAuthtokens), notice{Code: noticeTokenGone})
}

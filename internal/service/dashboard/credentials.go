// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"net/http"
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
	State           string  // see credentialState
	Own             bool    // the sign-in of the page is by it
	Secret          *string // Secret is set for one that was just created, and shown only once.
}

// credentialKind is API keys or authtokens: how pages call them, and where they are kept.
type credentialKind struct {
	path           string // path of the pages, below Path
	noun, title    string // singular; heading of the list
	rights         string // the name of their rights
	deletionEffect string
	deleted        string // code of the notice
	emptyForm      credentialForm
	store          credentialStore
}

// credentialStore keeps the credentials of one kind.
type credentialStore interface {
	list(c *call, p account.Page) ([]credential, bool, error)
	get(c *call, id string) (*credential, error)
	// create returns the credential that the form asks for. CodeInvalid and CodeLimit are shown in
	// the form.
	create(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, error)
	remove(c *call, id string) error
}

// apiKeyStore implements credentialStore for API keys.
type apiKeyStore struct{ keys account.APIKeys }

func apiKeys(store account.APIKeys) *credentialKind {
	return &credentialKind{path: "api-keys", noun: "API key", title: "API keys", rights: "Scopes",
		deletionEffect: "Requests with it are refused at once; sign-ins to the dashboard and an exporter’s " +
			"sessions with it end.",
		deleted:   noticeKeyDeleted,
		emptyForm: credentialForm{Scopes: scopeChoices([]string{string(account.ScopeRead)})},
		store:     apiKeyStore{store},
	}
}

func showAPIKey(k *account.APIKey, now time.Time) *credential {
	return &credential{ID: k.ID, Description: k.Description, Rights: scopeTexts(k.Scopes), Rules: k.ACL,
		Cluster: k.ClusterUID, Created: k.CreatedAt, Expires: k.ExpiresAt, Used: k.LastUsedAt,
		State: credentialState(k.ExpiresAt, now), Secret: k.Token}
}

func (s apiKeyStore) list(c *call, p account.Page) (all []credential, more bool, err error) {
	found, more, err := s.keys.ListAPIKeys(c.Context(), c.AccountID(), p)
	for i := range found {
		all = append(all, *showAPIKey(&found[i], c.now()))
	}
	return all, more, err
}

func (s apiKeyStore) get(c *call, id string) (*credential, error) {
	k, err := s.keys.APIKey(c.Context(), c.AccountID(), id)
	if err != nil {
		return nil, err
	}
	return showAPIKey(k, c.now()), nil
}

func (s apiKeyStore) create(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, error) {
	scopes := []account.Scope{}
	for _, given := range c.Request.PostForm["scopes"] {
		scopes = append(scopes, account.Scope(given))
	}
	patch := account.APIKeyPatch{Description: &form.Description, Scopes: &scopes, ClusterUID: &form.ClusterUID,
		Expiry: expiry}
	if acl := strings.Fields(form.ACL); len(acl) > 0 {
		patch.ACL = &acl
	}
	if _, err := patch.Apply(account.APIKey{}, c.now()); err != nil {
		return nil, err
	}
	k, err := s.keys.CreateAPIKey(c.Context(), c.Caller(), patch)
	if err != nil {
		return nil, err
	}
	return showAPIKey(k, c.now()), nil
}

func (s apiKeyStore) remove(c *call, id string) error {
	return s.keys.DeleteAPIKey(c.Context(), c.Caller(), id)
}

// authtokenStore implements credentialStore for authtokens.
type authtokenStore struct{ tokens account.Authtokens }

func authtokens(store account.Authtokens) *credentialKind {
	return &credentialKind{path: "authtokens", noun: "authtoken", title: "Authtokens", rights: "Rules",
		deletionEffect: "Agents and forwarders that connected with it are cut off within a second.",
		deleted:        noticeAuthtokenDeleted,
		emptyForm:      credentialForm{ACL: strings.Join(account.DefaultACL(), "\n")},
		store:          authtokenStore{store},
	}
}

func showAuthtoken(a *account.Authtoken, now time.Time) *credential {
	return &credential{ID: a.ID, Description: a.Description, Rights: a.ACL, Created: a.CreatedAt,
		Expires: a.ExpiresAt, Used: a.LastUsedAt, State: credentialState(a.ExpiresAt, now), Secret: a.Token}
}

func (s authtokenStore) list(c *call, p account.Page) (all []credential, more bool, err error) {
	found, more, err := s.tokens.ListAuthtokens(c.Context(), c.AccountID(), p)
	for i := range found {
		all = append(all, *showAuthtoken(&found[i], c.now()))
	}
	return all, more, err
}

func (s authtokenStore) get(c *call, id string) (*credential, error) {
	a, err := s.tokens.Authtoken(c.Context(), c.AccountID(), id)
	if err != nil {
		return nil, err
	}
	return showAuthtoken(a, c.now()), nil
}

func (s authtokenStore) create(c *call, form *credentialForm, expiry account.ExpiryPatch) (*credential, error) {
	acl := strings.Fields(form.ACL)
	patch := account.AuthtokenPatch{Description: &form.Description, ACL: &acl, Expiry: expiry}
	if _, err := patch.Apply(account.Authtoken{}, c.now()); err != nil {
		return nil, err
	}
	a, err := s.tokens.CreateAuthtoken(c.Context(), c.Caller(), patch)
	if err != nil {
		return nil, err
	}
	return showAuthtoken(a, c.now()), nil
}

func (s authtokenStore) remove(c *call, id string) error {
	return s.tokens.DeleteAuthtoken(c.Context(), c.Caller(), id)
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
func credentialState(expires *time.Time, now time.Time) string {
	if expires == nil {
		return ""
	}
	switch left := expires.Sub(now); {
	case left <= 0:
		return "expired"
	case left < expiryWarning:
		return stateExpiring
	}
	return ""
}

// lifetimes are those that a new credential can have, in the order of the form.
var lifetimes = []lifetime{{"", "Never", 0}, {"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour}, {"90d", "90 days", 90 * 24 * time.Hour},
	{"365d", "1 year", 365 * 24 * time.Hour}}

type lifetime struct {
	Value, Text string
	Duration    time.Duration
}

// credentialForm is the form for a new credential, and the page that shows the created one.
type credentialForm struct {
	Description string
	Expires     string
	Lifetimes   []lifetime
	Scopes      []scopeChoice
	ACL         string
	ClusterUID  string
	Problems    map[string]string // by field
	FormProblem string            // a problem of no field

	Created *credential // nil until it is created
}

type scopeChoice struct {
	Scope   account.Scope
	Allows  string
	Checked bool
}

func scopeChoices(given []string) []scopeChoice {
	allows := map[account.Scope]string{
		account.ScopeAdmin: "everything", account.ScopeRead: "see everything, change nothing",
		account.ScopeOperator:   "what a Kubernetes operator needs",
		account.ScopeIdentities: "see and revoke identities, nothing else",
		account.ScopeExporter:   "what the exporter of one cluster needs; with no other scope",
	}
	var all []scopeChoice
	for _, scope := range account.Scopes() {
		choice := scopeChoice{Scope: scope, Allows: allows[scope]}
		for _, g := range given {
			choice.Checked = choice.Checked || g == string(scope)
		}
		all = append(all, choice)
	}
	return all
}

type credentialsPage struct {
	Rows  []credential
	Pager pager
}

func (k *credentialKind) showList(c *call) error {
	rows, more, err := k.store.list(c, c.page())
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Own = rows[i].ID == c.Key.ID
	}
	p := credentialsPage{rows, pagerOf(c, rows, more, func(r *credential) string { return r.ID }, nil)}
	return c.show(http.StatusOK, view{Page: k.path, Title: k.title, Nav: k.path, Live: "audit", Poll: true, Data: p})
}

func (k *credentialKind) showEmptyForm(c *call) error {
	return k.showForm(c, http.StatusOK, k.emptyForm)
}

func (k *credentialKind) showForm(c *call, status int, form credentialForm) error {
	form.Lifetimes = lifetimes
	title := "New " + k.noun
	if form.Created != nil {
		title = "The new " + k.noun
	}
	return c.show(status, view{Page: strings.TrimSuffix(k.path, "s") + "-new", Title: title, Nav: k.path,
		Crumb: &link{k.title, Path + k.path}, Data: form})
}

// showProblems shows the form again with its values and with the rules that err names.
func (k *credentialKind) showProblems(c *call, form credentialForm, err error) error {
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
		form.FormProblem = sentence(known.Msg)
	}
	return k.showForm(c, known.Code.Status(), form)
}

func (k *credentialKind) submitForm(c *call) error {
	posted := c.Request.PostForm
	form := credentialForm{Description: posted.Get("description"), ACL: posted.Get("acl"),
		ClusterUID: strings.TrimSpace(posted.Get("cluster_uid")), Scopes: scopeChoices(posted["scopes"])}
	expiry, lifetime, err := c.parseExpiry()
	if err != nil {
		return k.showProblems(c, form, err)
	}
	form.Expires = lifetime
	form.Created, err = k.store.create(c, &form, expiry)
	if err != nil {
		return k.showProblems(c, form, err)
	}
	return k.showForm(c, http.StatusCreated, form)
}

func (k *credentialKind) confirmDelete(c *call) error {
	found, err := k.store.get(c, c.ID())
	if err != nil {
		return err
	}
	effect := k.deletionEffect
	if found.ID == c.Key.ID {
		effect += " This is the key that you are signed in with."
	}
	facts := []fact{{"Description", orDash(found.Description)}, {"Id", found.ID},
		{k.rights, strings.Join(found.Rights, ", ")}}
	if len(found.Rules) > 0 {
		facts = append(facts, fact{"Rules", strings.Join(found.Rules, ", ")}, fact{"Cluster", orDash(found.Cluster)})
	}
	return c.confirm(k.path, link{k.title, Path + k.path}, confirmation{
		Question: "Delete this " + k.noun + "?", Effect: effect, Verb: "Delete " + k.noun, Busy: "Deleting",
		Back: Path + k.path, Danger: true, Facts: facts,
	})
}

func (k *credentialKind) delete(c *call) error {
	return c.finish(k.store.remove(c, c.ID()), Path+k.path, notice{Code: k.deleted})
}

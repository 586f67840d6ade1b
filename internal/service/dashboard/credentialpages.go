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
	Secret  string      // the secret of Created, shown only once
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

// routes returns the routes of the kind's pages.
func (k credentialKind) routes() map[string]route {
	return map[string]route{
		Path + k.path:                  {get: k.showList, scopes: readScopes},
		Path + k.path + "/new":         {get: k.showEmptyForm, post: k.submitForm},
		Path + k.path + "/{id}/delete": {get: k.confirmDelete, post: k.delete},
	}
}

type credentialsPage struct {
	Rows  []credential
	Pager pager
}

func (k credentialKind) showList(c *call) error {
	rows, more, err := k.list(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Own = rows[i].ID == c.Key.ID
	}
	p := credentialsPage{rows, pagerOf(c, rows, more, func(r *credential) string { return r.ID }, nil)}
	return c.show(http.StatusOK, view{Page: k.path, Title: k.title, Nav: k.path, Live: "audit", Poll: true, Data: p})
}

func (k credentialKind) showEmptyForm(c *call) error {
	return k.showForm(c, http.StatusOK, k.emptyForm)
}

func (k credentialKind) showForm(c *call, status int, form credentialForm) error {
	form.Lifetimes = lifetimes
	title := "New " + k.noun
	if form.Created != nil {
		title = "The new " + k.noun
	}
	return c.show(status, view{Page: strings.TrimSuffix(k.path, "s") + "-new", Title: title, Nav: k.path,
		Crumb: &link{k.title, Path + k.path}, Data: form})
}

// showProblems shows the form again with its values and with the rules that err names.
func (k credentialKind) showProblems(c *call, form credentialForm, err error) error {
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

func (k credentialKind) submitForm(c *call) error {
	posted := c.Request.PostForm
	form := credentialForm{Description: posted.Get("description"), ACL: posted.Get("acl"),
		ClusterUID: strings.TrimSpace(posted.Get("cluster_uid")), Scopes: scopeChoices(posted["scopes"])}
	expiry, lifetime, err := c.parseExpiry()
	if err != nil {
		return k.showProblems(c, form, err)
	}
	form.Expires = lifetime
	created, secret, err := k.create(c, &form, expiry)
	if err != nil {
		return k.showProblems(c, form, err)
	}
	form.Created = created
	if secret != nil {
		form.Secret = *secret
	}
	return k.showForm(c, http.StatusCreated, form)
}

func (k credentialKind) confirmDelete(c *call) error {
	found, err := k.get(c.Context(), c.AccountID(), c.ID())
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

func (k credentialKind) delete(c *call) error {
	if err := k.remove(c.Context(), c.Caller(), c.ID()); err != nil {
		return err
	}
	return c.redirect(Path+k.path, notice{Code: k.deleted})
}

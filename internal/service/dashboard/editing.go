// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// maxEditForm bounds the form of an editor: what is typed, what was shown, and their encoding. It
// is more than any object has, so that a text that is too long is shown again, with its limit.
const maxEditForm = 4 << 20

// Values of "step" of the form of an editor: what its buttons ask for.
const (
	stepReview = "review" // show what would change
	stepSave   = "save"
	stepCheck  = "check" // show what is wrong with it
	stepEdit   = "edit"  // show the form again
	stepMore   = "more"  // show the form with further rows for children
)

// editable is a kind of objects that forms make and change: cloud endpoints, or the backends of a
// kind.
type editable interface {
	// fields returns the fields of the form of a new object, or of an existing one with the ID.
	fields(c *call, id string) ([]field, error)
	// load returns the object that the call names. Its error tells why it cannot be changed.
	load(c *call, id string) (*subject, error)
	// check returns CodeInvalid with every rule that what is typed breaks.
	check(c *call, d *draft) error
	// write creates the object, or changes it unless it was changed since the draft's version.
	write(c *call, d *draft) (id string, err error)
}

// editor makes and changes the objects of one kind. Every change goes through the same pages: the
// form, a review of the difference, and where another has saved first the differences of both.
type editor struct {
	editable
	policies *policies
	audit    account.AuditLog

	noun   string // in the middle of a sentence
	nav    string
	parent link   // the link above the pages
	path   string // path of the list, below Path: an object's ends with its ID
	newURL string // where the form of a new object is sent

	created string // created is the code of the notice.
	updated account.AuditType

	// defaults are the values of a new object.
	defaults values
}

// subject is an object that a form changes.
type subject struct {
	id, title string
	updatedAt time.Time
	shown     values // values in the form
	policy    string // with its secrets, of an endpoint
	object    any
}

// draft is what a person has typed into a form.
type draft struct {
	fields  []field
	current *subject  // the object as it is now; nil for a new one
	version time.Time // version of the object that the form was opened for
	base    values    // what the form showed when it was opened
	mine    values    // what the person wants; secrets of a policy are marks
	secrets []string  // typed secrets of the policy
	policy  string    // the policy of mine with its secrets
	more    int       // further rows for children
	gone    bool      // the object was deleted after the form was opened
}

// changed reports whether the person has changed the field.
func (d *draft) changed(name string) bool { return d.mine[name] != d.base[name] }

// outdated reports whether the object was changed since the form was opened.
func (d *draft) outdated() bool {
	return d.current != nil && !d.current.updatedAt.Equal(d.version)
}

// title returns the title of the form.
func (e *editor) title(d *draft) string {
	if d.current == nil {
		return "New " + e.noun
	}
	return "Change " + d.current.title
}

// action returns where the form is sent.
func (e *editor) action(d *draft) string {
	if d.current == nil {
		return e.newURL
	}
	return e.page(d.current.id) + "/edit"
}

func (e *editor) page(id string) string { return Path + e.path + "/" + id }

// open shows the form.
func (e *editor) open(c *call) error {
	d, err := e.newDraft(c, c.ID())
	if err != nil {
		return err
	}
	return e.showForm(c, http.StatusOK, d, formProblems{})
}

// newDraft returns a draft of the object with the ID, "" for a new one, in which nothing is typed.
func (e *editor) newDraft(c *call, id string) (*draft, error) {
	d := &draft{base: e.defaults}
	var err error
	if id != "" {
		if d.current, err = e.load(c, id); err != nil {
			return nil, err
		}
		d.base, d.version = d.current.shown, d.current.updatedAt
		d.policy = d.current.policy
	}
	if d.fields, err = e.fields(c, id); err != nil {
		return nil, err
	}
	d.mine = d.base
	return d, nil
}

// submit does what the form that was sent asks for.
func (e *editor) submit(c *call) error {
	d, err := e.readDraft(c)
	if err != nil {
		return err
	}
	badMark := e.policies.restoreDraft(c, d)
	if d.gone {
		return e.showDeleted(c, d)
	}
	step := c.Request.PostForm.Get("step")
	if step == stepEdit || step == stepMore {
		return e.showForm(c, http.StatusOK, d, formProblems{})
	}
	if badMark != nil && d.outdated() { // the secret may be one that the other has replaced
		return e.showConflict(c, d)
	}
	if err = badMark; err == nil {
		err = e.check(c, d)
	}
	if err != nil {
		return e.showProblems(c, http.StatusBadRequest, d, err)
	}
	switch {
	case step == stepCheck:
		return e.showForm(c, http.StatusOK, d, formProblems{})
	case d.outdated():
		return e.showConflict(c, d)
	case step != stepSave && d.current != nil:
		return e.showReview(c, d)
	}
	return e.save(c, d)
}

// showProblems shows the form with what the error says about it. It returns an error that is not
// about what the form has sent.
func (e *editor) showProblems(c *call, status int, d *draft, err error) error {
	problems, ok := problemsOf(err, d.fields)
	if !ok {
		return err
	}
	return e.showForm(c, status, d, problems)
}

// save writes a draft. The form, or the page of a conflict, keeps what cannot be written.
func (e *editor) save(c *call, d *draft) error {
	id, err := e.write(c, d)
	if account.CodeOf(err) == account.CodeChanged {
		if again, loadErr := e.load(c, d.current.id); loadErr == nil {
			d.current = again
			return e.showConflict(c, d)
		}
		return err
	}
	if account.CodeOf(err) == account.CodeNotFound && d.current != nil {
		return e.showDeleted(c, d)
	}
	if err != nil {
		return e.showProblems(c, account.CodeOf(err).Status(), d, err)
	}
	code := noticeSaved
	if d.current == nil {
		code = e.created
	}
	return c.redirect(e.page(id), notice{Code: code})
}

// showDeleted shows what was typed in the form of a new object: the one that it was for is gone.
func (e *editor) showDeleted(c *call, d *draft) error {
	fields, err := e.fields(c, "")
	if err != nil {
		return err
	}
	for _, f := range fields {
		if _, typed := d.mine[f.Name]; !typed {
			d.mine[f.Name] = d.base[f.Name]
		}
	}
	d.current, d.fields, d.base = nil, fields, e.defaults
	return e.showForm(c, http.StatusConflict, d, formProblems{general: "This " + e.noun +
		" was deleted meanwhile. What you typed is kept below: make a new one of it, or leave the page."})
}

// editPage is the data of the form.
type editPage struct {
	draftForm
	New         bool
	Fields      []fieldView
	Problem     string // a problem of no single field
	Problems    int    // fields with a problem
	SecretNames string // SecretNames is redact.SecretNames.
	Restored    bool   // the form has what was typed before the browser was signed out
	More        int    // rows for children that a further press of its button adds
	HasMembers  bool
	HasPolicy   bool
}

func (e *editor) showForm(c *call, status int, d *draft, problems formProblems) error {
	form, err := e.draftForm(c, d)
	if err != nil {
		return err
	}
	p := editPage{draftForm: form, New: d.current == nil, Problem: problems.general, SecretNames: redact.SecretNames,
		Restored: c.Request.PostForm.Has(restoredInput), More: d.more + 4}
	for _, f := range d.fields {
		v := f.view(d.mine[f.Name], problems.byField[f.Name], d.more)
		p.HasMembers = p.HasMembers || len(v.Members) > 0
		if f.Kind == inputPolicy {
			p.HasPolicy = true
			v.Policy = e.policies.view(c, d, problems.findings)
			v.Value = v.Policy.Text
		}
		if v.Problem != "" || v.Policy != nil && len(v.Policy.Findings) > 0 {
			p.Problems++
		}
		p.Fields = append(p.Fields, v)
	}
	crumb := e.parent
	if d.current != nil {
		crumb = link{d.current.title, e.page(d.current.id)}
	}
	return c.show(status, view{Page: "edit", Title: e.title(d), Nav: e.nav, Crumb: &crumb, Data: p})
}

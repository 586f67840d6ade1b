// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"time"
)

// difference is what differs between two states of an object: values of one line, and texts.
type difference struct {
	Short []shortChange
	Long  []longChange
}

// None reports whether nothing differs.
func (d difference) None() bool { return len(d.Short)+len(d.Long) == 0 }

type shortChange struct{ Name, Label, Before, After string }

type longChange struct {
	ID, Label string
	Lines     []diffLine
}

// differenceOf returns the difference of two states. The IDs of its elements begin with the prefix.
func differenceOf(fields []field, before, after values, prefix string) (d difference) {
	for _, f := range fields {
		from, to := before[f.Name], after[f.Name]
		if from == to {
			continue
		}
		from, to = f.display(from), f.display(to)
		lines := f.Kind != inputLine && f.Kind != inputChoice && f.Kind != inputFlag
		if !lines && !strings.Contains(from+to, "\n") {
			d.Short = append(d.Short, shortChange{f.Name, f.Label, from, to})
			continue
		}
		d.Long = append(d.Long, longChange{prefix + f.Name, f.Label, hunks(diffLines(from, to))})
	}
	return d
}

// draftForm is a draft in the form of a page. Draft is for pages that have no fields for it.
type draftForm struct {
	Action, Cancel                string
	Noun                          string
	Base, Version, Secrets, Draft string
	Account                       string
}

func (e *editor) draftForm(c *call, d *draft) (f draftForm, err error) {
	f = draftForm{Action: e.action(d), Cancel: e.parent.Href, Noun: e.noun, Base: encodeValues(d.base),
		Version: encodeTime(d.version), Draft: encodeValues(d.mine), Account: c.AccountID()}
	if d.current != nil {
		f.Cancel = e.page(d.current.id)
	}
	f.Secrets, err = e.policies.seal(c, d.secrets)
	return f, err
}

type reviewPage struct {
	draftForm
	Difference difference
}

// showReview shows what saving the draft would change.
func (e *editor) showReview(c *call, d *draft) error {
	form, err := e.draftForm(c, d)
	if err != nil {
		return err
	}
	return c.show(http.StatusOK, view{Page: "review", Title: "Save these changes?", Nav: e.nav,
		Crumb: &link{d.current.title, e.page(d.current.id)},
		Data:  reviewPage{form, differenceOf(d.fields, d.current.shown, d.mine, "change-")}})
}

type conflictPage struct {
	draftForm
	At     time.Time // time of the other change; zero = not known
	By     string    // the ID of the key that made it; "" = not known
	Theirs difference
	Yours  difference // between what is there now and what saving leads to
	Both   []string   // labels of the fields that both have changed
}

// showConflict shows what another has saved since the form was opened, and what saving the draft
// would change now. Fields that the person has left alone keep what the other has saved.
func (e *editor) showConflict(c *call, d *draft) error {
	next := d.rebased()
	form, err := e.draftForm(c, next)
	if err != nil {
		return err
	}
	p := conflictPage{draftForm: form, Theirs: differenceOf(d.fields, d.base, d.current.shown, "theirs-"),
		Yours: differenceOf(d.fields, d.current.shown, next.mine, "yours-")}
	for _, f := range d.fields {
		now := d.current.shown[f.Name]
		if d.changed(f.Name) && now != d.base[f.Name] && now != d.mine[f.Name] {
			p.Both = append(p.Both, f.Label)
		}
	}
	if last := lastEvent(c, e.audit, d.current.id, e.updated); last != nil {
		p.At = last.OccurredAt
		if last.Principal != nil {
			p.By = last.Principal.ID
		}
	}
	return c.show(http.StatusConflict, view{Page: "conflict", Title: "Another has saved this " + e.noun, Nav: e.nav,
		Crumb: &link{d.current.title, e.page(d.current.id)}, Data: p})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// patchAsOther changes an endpoint as another key.
func (f *fake) patchAsOther(t *testing.T, id string, p account.EndpointPatch) {
	t.Helper()
	by := account.Caller{AccountID: mine, PrincipalID: f.keys[4].ID}
	if _, err := f.PatchEndpoint(t.Context(), by, id, p, account.PolicyFacts{}); err != nil {
		t.Fatal(err)
	}
}

func TestEditor_ConflictKeepsBoth(t *testing.T) {
	t.Parallel()
	for _, at := range []string{stepReview, stepSave} {
		f := newFake(testTime())
		b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
		id := f.endpoints[3].ID
		path := "/ui/endpoints/" + id + "/edit"
		page := b.get(path)
		if at == stepSave {
			page = b.send(path, page.body, stepReview, url.Values{"description": {"Mine"}})
		}
		f.patchAsOther(t, id, account.EndpointPatch{Metadata: new("Theirs")})
		a := b.send(path, page.body, at, url.Values{"description": {"Mine"}})
		text := textOf(a.body)
		for _, want := range []string{"Another has saved this cloud endpoint", f.keys[4].ID, "Theirs", "Mine",
			"Fields that you left alone keep what the other saved.", "Save both"} {
			if a.status != http.StatusConflict || !strings.Contains(text, want) {
				t.Errorf("at %s: %d, %q is missing: %s", at, a.status, want, text)
			}
		}
		if f.endpoints[3].Description == "Mine" {
			t.Errorf("at %s: it was saved", at)
		}
		// The form that one goes on with has both.
		form := formOf(b.send(path, a.body, stepEdit, nil).body)
		if form.Get("description") != "Mine" || form.Get("metadata") != "Theirs" {
			t.Errorf("at %s: the form has %v", at, form)
		}
		a = b.send(path, a.body, stepSave, nil)
		if e := f.endpoints[3]; a.status != http.StatusSeeOther || e.Description != "Mine" || e.Metadata != "Theirs" {
			t.Errorf("at %s: %d, %+v", at, a.status, e)
		}
	}
}

func TestEditor_ConflictOfOneField(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	e := f.endpoints[4]
	path := "/ui/endpoints/" + e.ID + "/edit"
	page := b.get(path)
	typed := formOf(page.body).Get(policyField) + "# mine\r\n"
	theirs := strings.Replace(e.TrafficPolicy, "hunter2-hunter2", "planted-new-secret", 1) + "# theirs\n"
	f.patchAsOther(t, e.ID, account.EndpointPatch{TrafficPolicy: &theirs})
	a := b.send(path, page.body, stepReview, url.Values{policyField: {typed}})
	text := textOf(a.body)
	// The mark of the secret that is gone stands for none: the text is kept, and told where.
	if a.status != http.StatusConflict || !strings.Contains(text, "+ # mine") {
		t.Errorf("a mark of a secret that the other has replaced: %d %s", a.status, text)
	}
	a = b.send(path, a.body, stepSave, nil)
	if a.status != http.StatusBadRequest ||
		!strings.Contains(a.body, "stands for a secret that this endpoint does not") ||
		!strings.Contains(formOf(a.body).Get(policyField), "# mine") || strings.Contains(f.endpoints[4].TrafficPolicy,
		"hunter2") {
		t.Errorf("saving it: %d %s", a.status, textOf(a.body))
	}
	typed = "# mine\r\non_http_request: [{actions: [{type: deny}]}]\r\n"
	a = b.send(path, page.body, stepReview, url.Values{policyField: {typed}})
	for _, want := range []string{"You both changed: Traffic policy.", "+ # theirs", "- # theirs", "+ # mine",
		"Save mine over theirs"} {
		if !strings.Contains(textOf(a.body), want) {
			t.Errorf("%q is missing: %s", want, textOf(a.body))
		}
	}
	for _, secret := range []string{"hunter2", "planted-new-secret"} {
		if strings.Contains(a.body, secret) {
			t.Errorf("the page shows %s", secret)
		}
	}
	// A third save in between is another conflict.
	f.patchAsOther(t, e.ID, account.EndpointPatch{Description: new("third")})
	if again := b.send(path, a.body, stepSave, nil); again.status != http.StatusConflict ||
		!strings.Contains(again.body, "third") {
		t.Errorf("a save after a third one: %d", again.status)
	} else if done := b.send(path, again.body, stepSave, nil); done.status != http.StatusSeeOther ||
		f.endpoints[4].TrafficPolicy != strings.ReplaceAll(typed, "\r", "") || f.endpoints[4].Description != "third" {
		t.Errorf("saving at last: %d %+v", done.status, f.endpoints[4])
	}
}

// TestEditor_ConflictWhileWriting changes the endpoint between the last look at it and the write.
func TestEditor_ConflictWhileWriting(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	id, armed := f.endpoints[3].ID, false
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) {
		o.CheckPolicy = func(string, string, string) (account.PolicyFacts, error) {
			if armed {
				armed = false
				f.patchAsOther(t, id, account.EndpointPatch{Metadata: new("Theirs")})
			}
			return account.PolicyFacts{Digest: "x"}, nil
		}
	}), "flk_admin")
	path := "/ui/endpoints/" + id + "/edit"
	review := b.send(path, b.get(path).body, stepReview, url.Values{policyField: {"on_http_request: []"}})
	armed = true
	a := b.send(path, review.body, stepSave, nil)
	if a.status != http.StatusConflict || !strings.Contains(a.body, "Theirs") || f.endpoints[3].TrafficPolicy != "" {
		t.Errorf("%d, policy %q", a.status, f.endpoints[3].TrafficPolicy)
	}
}

func TestEditor_KeepsInputOfDeletedObject(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	e := f.endpoints[3]
	path := "/ui/endpoints/" + e.ID + "/edit"
	page := b.get(path)
	f.set(func() { f.endpoints = append(f.endpoints[:3:3], f.endpoints[4:]...) })
	a := b.send(path, page.body, stepReview, url.Values{"description": {"Mine"}})
	form := formOf(a.body)
	if a.status != http.StatusConflict || !strings.Contains(a.body, "was deleted meanwhile") ||
		form.Get("description") != "Mine" || form.Get("url") != e.URL || form.Get("backend_id") != e.BackendID {
		t.Errorf("%d: %v", a.status, form)
	}
	if made := b.send("/ui/endpoints/new", a.body, stepSave, nil); made.status != http.StatusSeeOther ||
		f.endpoints[len(f.endpoints)-1].Description != "Mine" {
		t.Errorf("making it again: %d", made.status)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// signInAgain sends the form of the sign-in page with the key, and the form again where the browser
// is told to.
func (b *browser) signInAgain(page, secret string) answer {
	b.t.Helper()
	form := formOf(page)
	form.Set("key", secret)
	a := b.post("/ui/sign-in", form.Encode())
	if a.status == http.StatusTemporaryRedirect {
		return b.post(a.header.Get("Location"), form.Encode())
	}
	return a
}

func TestEditor_KeepsFormOverSignIn(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	const secret = "planted-typed-secret"
	at := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	policy := "on_http_request:\r\n  - actions:\r\n      - type: basic-auth\r\n        config:\r\n" +
		"          credentials: [\"user:" + secret + "\"]\r\n"
	typed := url.Values{"description": {"Typed for an <hour>"}, policyField: {policy}}
	review := b.send(at, b.get(at).body, stepReview, typed)
	for name, sent := range map[string]func() answer{
		"form":   func() answer { return b.send(at, b.get(at).body, stepReview, typed) },
		"review": func() answer { return b.send(at, review.body, stepSave, nil) },
	} {
		page := ""
		if name == "form" { // the form was open before the sign-in ended
			page = b.get(at).body
			sent = func() answer { return b.send(at, page, stepReview, typed) }
		}
		f.set(func() { clear(f.signIns) })
		ended := sent()
		if ended.status != http.StatusUnauthorized || !strings.Contains(ended.body, "What you typed is kept") ||
			strings.Contains(ended.body, secret) || strings.Contains(ended.body, "an &lt;hour") ||
			strings.Contains(ended.body, `data-return="/`) {
			t.Fatalf("%s: %d, or what was typed stands in it: %s", name, ended.status, ended.body)
		}
		wrong := b.signInAgain(ended.body, "flk_wrong")
		if wrong.status != http.StatusUnauthorized || !strings.Contains(wrong.body, keptInput) {
			t.Fatalf("%s: a wrong key loses the form: %d", name, wrong.status)
		}
		again := b.signInAgain(wrong.body, "flk_admin")
		form := formOf(again.body)
		if again.status != http.StatusOK || form.Get("description") != "Typed for an <hour>" ||
			!strings.Contains(form.Get(policyField), "credentials: [\"redacted:") ||
			!strings.Contains(again.body, "what you typed is below") || strings.Contains(again.body, secret) {
			t.Fatalf("%s: %d %s", name, again.status, html.UnescapeString(textOf(again.body)))
		}
		if f.endpoints[4].Description != "What customers see" {
			t.Errorf("%s: signing in has saved", name)
		}
		saved := b.send(at, b.send(at, again.body, stepReview, nil).body, stepSave, nil)
		if e := f.endpoints[4]; saved.status != http.StatusSeeOther || e.Description != "Typed for an <hour>" ||
			!strings.Contains(e.TrafficPolicy, secret) {
			t.Errorf("%s: saving: %d %+v", name, saved.status, e)
		}
		f.patchAsOther(t, f.endpoints[4].ID, account.EndpointPatch{Description: new("What customers see")})
		review = b.send(at, b.get(at).body, stepReview, url.Values{"description": typed["description"]})
	}
}

func TestEditor_KeepsFormForItsAccount(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	const at, other = "/ui/endpoints/new", "/ui/backends/new/static"
	form := formOf(b.get(at).body)
	form.Set("url", "http://kept.demo")
	signedOut := func(form url.Values) answer {
		f.set(func() { clear(f.signIns) })
		return b.post(at, form.Encode())
	}
	kept := formOf(signedOut(form).body)
	if kept.Get(keptInput) == "" {
		t.Fatal("the form is not kept")
	}
	b = signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	if a := b.post(other, kept.Encode()); a.status != http.StatusBadRequest {
		t.Errorf("the form of another page: %d", a.status)
	}
	if a := b.post(at, url.Values{keptInput: {"bm8"}, "step": {stepSave}}.Encode()); a.status != http.StatusBadRequest {
		t.Errorf("a form that this server did not seal: %d", a.status)
	}
	form.Set(accountInput, "ac-other")
	form.Set(keptInput, kept.Get(keptInput))
	foreign := formOf(signedOut(form).body)
	b = signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	if a := b.post(at, foreign.Encode()); a.status != http.StatusForbidden || strings.Contains(a.body, "kept.demo") {
		t.Errorf("the form of another account: %d", a.status)
	}
	for path, id := range map[string]string{at: "", "/ui/endpoints/" + f.endpoints[4].ID + "/edit": f.endpoints[4].ID} {
		form := formOf(b.get(path).body)
		form.Set(accountInput, "ac-other")
		form.Set("url", "http://other.demo")
		form.Set("step", stepSave)
		if a := b.post(path, form.Encode()); a.status != http.StatusForbidden {
			t.Errorf("a form %q that was opened with a key of another account: %d", id, a.status)
		}
	}
	// What is no form of an editor, or is too large, leads to the sign-in page as ever.
	for name, form := range map[string]url.Values{"no form": {"step": {stepSave}},
		"large": {baseInput: {"e30"}, policyField: {strings.Repeat("x", maxKeptForm)}}} {
		if a := signedOut(form); a.status != http.StatusSeeOther || a.header.Get("Location") != "/ui/sign-in" {
			t.Errorf("%s: %d to %q", name, a.status, a.header.Get("Location"))
		}
	}
}

// TestEditor_KeepsFormWithinLimits holds that a client cannot make the server seal forms without
// end.
func TestEditor_KeepsFormWithinLimits(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := newBrowser(t, dashboardOf(t, f, func(o *Options) { o.Limits.SignInBurst = 2 }))
	for i, want := range []int{http.StatusUnauthorized, http.StatusUnauthorized, http.StatusSeeOther} {
		if a := b.post("/ui/endpoints/new", baseInput+"=e30"); a.status != want {
			t.Errorf("form %d: %d, want %d", i, a.status, want)
		}
	}
}

func TestEditor_ShowsTextsThatAreTooLong(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := signedInAs(t, dashboardOf(t, f, nil), "flk_admin")
	at := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	page := b.get(at)
	for name, text := range map[string]string{"lines": strings.Repeat("\r\n", 1<<19) + "x: y",
		"one line":   "# " + strings.Repeat("x", 1<<20),
		"a sequence": strings.Repeat("- a\r\n", 1<<18/5), "secrets": strings.Repeat("- token: b\r\n", 1<<18/12)} {
		a := b.send(at, page.body, stepReview, url.Values{policyField: {text}})
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "at most 65536") ||
			strings.Count(a.body, "<span>") > maxPolicyLines+50 {
			t.Errorf("%s: %d %.2000s", name, a.status, textOf(a.body))
		}
		if got := formOf(a.body).Get(policyField); len(got) < len(text)-10 {
			t.Errorf("%s: %d of %d bytes are shown again", name, len(got), len(text))
		}
		check := b.post("/ui/endpoints/check", url.Values{policyField: {text}}.Encode())
		if !strings.Contains(check.body, "at most 65536") {
			t.Errorf("%s: checking: %d", name, check.status)
		}
	}
}

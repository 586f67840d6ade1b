// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var (
	inputTag    = regexp.MustCompile(`(?s)<input\b[^>]*>`)
	textareaTag = regexp.MustCompile(`(?s)<textarea\b[^>]*\bname="([^"]*)"[^>]*>\n(.*?)</textarea>`)
	selectTag   = regexp.MustCompile(`(?s)<select\b[^>]*\bname="([^"]*)"[^>]*>(.*?)</select>`)
	optionTag   = regexp.MustCompile(`(?s)<option(?: value="([^"]*)")?( selected)?>([^<]*)</option>`)
)

// crlf makes the line ends that browsers send.
var crlf = strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")

// attribute returns the value of an attribute of a tag.
func attribute(tag, name string) string {
	if m := regexp.MustCompile(`\s` + name + `="([^"]*)"`).FindStringSubmatch(tag); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// formOf returns what a browser without scripts would send of the form of an editor.
func formOf(page string) url.Values {
	_, page, _ = strings.Cut(page, `<main`)
	form := url.Values{}
	for _, tag := range inputTag.FindAllString(page, -1) {
		if attribute(tag, "type") == "checkbox" && !strings.Contains(tag, " checked") {
			continue
		}
		form.Add(attribute(tag, "name"), attribute(tag, "value"))
	}
	for _, m := range textareaTag.FindAllStringSubmatch(page, -1) {
		form.Add(html.UnescapeString(m[1]), crlf.Replace(html.UnescapeString(m[2])))
	}
	for _, m := range selectTag.FindAllStringSubmatch(page, -1) {
		options := optionTag.FindAllStringSubmatch(m[2], -1)
		value := options[0][1]
		for _, o := range options {
			if o[2] != "" {
				value = o[1]
				if value == "" {
					value = o[3]
				}
			}
		}
		form.Add(html.UnescapeString(m[1]), html.UnescapeString(value))
	}
	return form
}

// send sends the form of a page with a step and other values.
func (b *browser) send(path, page, step string, change url.Values) answer {
	b.t.Helper()
	form := formOf(page)
	maps.Copy(form, change)
	form.Set("step", step)
	return b.post(path, form.Encode())
}

func TestEditor_ChangesEndpointAfterReview(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	e := f.endpoints[4]
	at := "/ui/endpoints/" + e.ID + "/edit"
	page := b.get(at)
	if page.status != http.StatusOK || strings.Contains(page.body, "hunter2") {
		t.Fatalf("the form: %d, or it shows a secret", page.status)
	}
	if a := b.send(at, page.body, stepReview, nil); !strings.Contains(a.body, "Nothing: the form has what is saved") {
		t.Errorf("a form without a change: %d %s", a.status, textOf(a.body))
	}
	policy := strings.Replace(formOf(page.body).Get(policyField), "@example.com", "@example.org", 1)
	a := b.send(at, page.body, stepReview, url.Values{policyField: {policy}, "description": {"Customers"},
		"pooling_enabled": {"true"}})
	text := textOf(a.body)
	for _, want := range []string{"Save these changes?", "What customers see", "Customers", "Pooled no yes",
		"@example.com&#39;)&#34;", "@example.org"} {
		if !strings.Contains(text, html.UnescapeString(want)) {
			t.Errorf("the review lacks %q: %s", want, text)
		}
	}
	if strings.Contains(a.body, "hunter2") {
		t.Error("the review shows a secret")
	}
	if f.endpoints[4].Description != e.Description {
		t.Error("the review has saved")
	}
	saved := b.send(at, a.body, stepSave, nil)
	now := f.endpoints[4]
	if saved.status != http.StatusSeeOther || now.Description != "Customers" || !now.PoolingEnabled ||
		!strings.Contains(now.TrafficPolicy, "hunter2-hunter2") ||
		!strings.Contains(now.TrafficPolicy, "@example.org") {
		t.Errorf("saving: %d, %+v", saved.status, now)
	}
	last := f.events[len(f.events)-1]
	if last.Type != account.AuditEndpointUpdated || last.Principal.ID != f.keys[0].ID {
		t.Errorf("the last event is %+v", last)
	}
	if page := b.get(saved.header.Get("Location")); !strings.Contains(page.body, "The changes are saved.") {
		t.Error("the page does not confirm it")
	}
}

func TestEditor_GoesBackFromReview(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	at := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	policy := "on_http_request:\n  - actions:\n      - type: openid-connect\n        config:\n          " +
		"issuer_url: https://a.example.com\n          client_id: x\n          client_secret: planted-typed-secret\n"
	review := b.send(at, b.get(at).body, stepReview, url.Values{policyField: {policy}})
	again := b.send(at, review.body, stepEdit, nil)
	for name, page := range map[string]answer{"review": review, "form": again} {
		if page.status != http.StatusOK || strings.Contains(page.body, "planted-typed-secret") {
			t.Errorf("the %s: %d, or it shows a secret that was typed", name, page.status)
		}
	}
	shown := formOf(again.body).Get(policyField)
	if !strings.Contains(shown, "client_secret: \"redacted:") && !strings.Contains(shown, "client_secret: redacted:") {
		t.Fatalf("the form shows %s", shown)
	}
	review = b.send(at, again.body, stepReview, url.Values{policyField: {"# new\r\n" + shown}})
	if a := b.send(at, review.body, stepSave, nil); a.status != http.StatusSeeOther ||
		!strings.Contains(f.endpoints[4].TrafficPolicy, "planted-typed-secret") ||
		!strings.Contains(f.endpoints[4].TrafficPolicy, "# new") {
		t.Errorf("saving: %d, %s", a.status, f.endpoints[4].TrafficPolicy)
	}
	// Another key cannot use what is sealed for this one.
	form := formOf(again.body)
	form.Set(secretsInput, "bm8")
	form.Set("step", stepReview)
	if a := b.post(at, form.Encode()); a.status != http.StatusBadRequest {
		t.Errorf("foreign secrets: %d", a.status)
	}
}

func TestEditor_ShowsMistakesBesideFields(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	at := "/ui/endpoints/" + f.endpoints[4].ID + "/edit"
	page := b.get(at)
	policy := formOf(page.body).Get(policyField)
	for what, c := range map[string]struct {
		change url.Values
		want   []string
	}{
		"description": {url.Values{"description": {strings.Repeat("x", 256)}},
			[]string{`id="description-problem"`, "Has 256 bytes; at most 255 are allowed.", "1 field needs a change"}},
		"policy": {url.Values{policyField: {"on_http_request:\r\n  - actions:\r\n      - type: nonsense\r\n"}},
			[]string{`data-line="3"`, "Line 3, column", `<span class="marked">3</span>`, "1 mistake<"}},
		"syntax": {url.Values{policyField: {"a: [<script>"}}, []string{"neither YAML nor JSON", "a: [&lt;script&gt;"}},
		"mark": {url.Values{policyField: {"on_http_request: []\r\nx: redacted:00000000\r\n"}},
			[]string{`data-line="2" data-column="4"`, "stands for a secret that this endpoint does not have"}},
		"behind a secret": {url.Values{policyField: {policy + "inbound: []\r\n"}},
			[]string{"its name is on_http_request", `<span class="marked">12</span>`}},
		"question": {url.Values{policyField: {"on_http_request:\r\n- expressions: [req.methodd == 'x']\r\n  actions: " +
			"[{type: deny}]\r\n"}}, []string{"did you mean req.method?<"}},
	} {
		a := b.send(at, page.body, stepReview, c.change)
		if a.status != http.StatusBadRequest || strings.Contains(a.body, "hunter2") ||
			strings.Contains(a.body, "<script>") {
			t.Errorf("%s: %d, or a secret or a script", what, a.status)
		}
		for _, want := range c.want {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: %q is missing: %s", what, want, textOf(a.body))
			}
		}
		for name, values := range c.change {
			if got := formOf(a.body).Get(name); strings.TrimSpace(got) != strings.TrimSpace(values[0]) {
				t.Errorf("%s: %s was typed, and the form shows %s", what, values[0], got)
			}
		}
	}
	if f.endpoints[4].Description != "What customers see" {
		t.Error("something was saved")
	}
}

func TestEditor_CreatesEndpoint(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	const at = "/ui/endpoints/new"
	page := b.get(at)
	for _, c := range []struct {
		change url.Values
		status int
		want   string
	}{
		{url.Values{}, 400, "Is required, for example http://shop.demo."},
		{url.Values{"url": {"https://a.b"}}, 400, `id="url-problem"`},
		{url.Values{"url": {"http://a.b"}, "binding": {account.BindingClusterset}}, 400, `id="binding-problem"`},
		{url.Values{"url": {"http://shop.prod"}}, 409, "is that of cloud endpoint"},
		{url.Values{"url": {"tcp://a.b:1"}, policyField: {"on_http_request: [{actions: [{type: deny}]}]"}}, 400,
			"tcp endpoint is never parsed as HTTP"},
	} {
		a := b.send(at, page.body, stepSave, c.change)
		if a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%v: %d, want %d with %q: %s", c.change, a.status, c.status, c.want, textOf(a.body))
		}
	}
	a := b.send(at, page.body, stepSave, url.Values{"url": {" http://New.demo "}, "name": {"one"},
		"backend_id": {f.backends[3].ID}, "metadata": {"a\r\nb"}, policyField: {"\r\n"}})
	made := f.endpoints[len(f.endpoints)-1]
	if a.status != http.StatusSeeOther || made.URL != "http://new.demo" || made.Bindings[0] != "kubernetes" ||
		made.BackendID != f.backends[3].ID || made.Metadata != "a\nb" || made.TrafficPolicy != "" ||
		made.Name != "one" ||
		made.Principal.ID != f.keys[0].ID || a.header.Get("Location") != "/ui/endpoints/"+made.ID {
		t.Errorf("made %d %+v", a.status, made)
	}
}

func TestEditor_RefusesOthersEndpoints(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	f.endpoints[3].Owner = &account.Owner{Cluster: "c", Kind: account.KindCloudEndpoint, Namespace: "n", Name: "x"}
	for id, want := range map[string]string{f.endpoints[0].ID: "start the agent with other flags",
		f.endpoints[3].ID: "is changed by its object: CloudEndpoint n/x"} {
		for _, a := range []answer{b.get("/ui/endpoints/" + id + "/edit"),
			b.post("/ui/endpoints/"+id+"/edit", "step=save&description=x")} {
			if a.status != http.StatusBadRequest || !strings.Contains(a.body, want) {
				t.Errorf("%s: %d, want %q", id, a.status, want)
			}
		}
		if body := b.get("/ui/endpoints/" + id).body; strings.Contains(body, "/edit") {
			t.Errorf("%s offers the form", id)
		}
	}
	if a := b.post("/ui/endpoints/"+f.endpoints[4].ID+"/edit", "step=save"); a.status != http.StatusBadRequest {
		t.Errorf("a form without what it showed: %d", a.status)
	}
}

func TestEditor_ShownToWritersOnly(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	cloud, backend := "/ui/endpoints/"+f.endpoints[4].ID, "/ui/backends/"+f.backends[1].ID
	forms := []string{"/ui/endpoints/new", cloud + "/edit", cloud + "/delete", "/ui/backends/new/static",
		backend + "/edit", backend + "/delete"}
	for _, secret := range []string{"flk_read", "flk_identities"} {
		b := signedInAs(t, srv, secret)
		for _, path := range forms {
			if get, post := b.get(path), b.post(path, "step=save"); get.status != http.StatusForbidden ||
				post.status != http.StatusForbidden {
				t.Errorf("%s at %s: %d and %d", secret, path, get.status, post.status)
			}
		}
		if a := b.post("/ui/endpoints/check", ""); a.status != http.StatusForbidden {
			t.Errorf("%s checks a policy: %d", secret, a.status)
		}
	}
	for _, path := range []string{"/ui/endpoints", cloud, "/ui/backends", backend} {
		offers := regexp.MustCompile(`href="[^"]*/(new|edit|delete)\b`)
		if offers.MatchString(signedInAs(t, srv, "flk_read").get(path).body) {
			t.Errorf("%s offers a reader what a reader may not do", path)
		}
		if !offers.MatchString(signedInAs(t, srv, "flk_admin").get(path).body) {
			t.Errorf("%s offers a writer nothing", path)
		}
	}
	b := signedInAs(t, srv, "flk_admin")
	for _, path := range append(forms, "/ui/endpoints/check") {
		for _, header := range []map[string]string{{"Sec-Fetch-Site": "cross-site"},
			{"Sec-Fetch-Site": "", "Origin": "https://evil.example"}} {
			if a := b.do(http.MethodPost, path, "step=save", header); a.status != http.StatusForbidden {
				t.Errorf("POST %s with %v: %d", path, header, a.status)
			}
		}
	}
	if a := b.post(cloud+"/edit", "x="+strings.Repeat("x", maxEditForm)); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a form that is too large: %d", a.status)
	}
}

func TestEditor_ShowsTextsThatAreTooLong(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
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

// TestEditor_ShowsFormOfItsAccountAgain holds what the page's script relies on to show what was
// typed before a sign-in.
func TestEditor_ShowsFormOfItsAccountAgain(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	for _, path := range []string{"/ui/endpoints/new", "/ui/endpoints/" + f.endpoints[4].ID + "/edit"} {
		page := b.get(path).body
		typed := url.Values{"description": {"Typed for an <hour>"}, restoredInput: {"true"}}
		a := b.send(path, page, stepEdit, typed)
		if form := formOf(a.body); a.status != http.StatusOK || form.Get("description") != "Typed for an <hour>" ||
			form.Has(restoredInput) || !strings.Contains(a.body, "what you typed is below") {
			t.Errorf("%s: %d %s", path, a.status, textOf(a.body))
		}
		typed.Set(accountInput, "ac-other")
		for _, step := range []string{stepEdit, stepSave} {
			a := b.send(path, page, step, typed)
			if a.status != http.StatusForbidden || strings.Contains(a.body, "hour") {
				t.Errorf("%s: the form of another account: %d", path, a.status)
			}
		}
	}
	if f.endpoints[4].Description != "What customers see" {
		t.Error("showing a form again has saved it")
	}
}

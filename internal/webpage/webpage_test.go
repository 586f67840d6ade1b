// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func page(content string) fstest.MapFS {
	return fstest.MapFS{
		"templates/layout.html": {Data: []byte(`<main>{{template "mark"}}{{block "content" .}}{{end}}</main>`)},
		"templates/parts.html":  {Data: []byte(`{{define "bold"}}<b>{{.}}</b>{{end}}`)},
		"templates/one.html":    {Data: []byte(`{{define "content"}}` + content + `{{end}}`)},
		"static/app.css":        {Data: []byte("main { color: red; }")},
	}
}

func TestTemplates_AnswerWithWholePages(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	all := ParseTemplates(page(`{{template "bold" .}}`), nil)
	must.Succeed(t, all.Answer(w, http.StatusTeapot, "one", "a\u202e<b"))
	body := w.Body.String()
	if w.Code != http.StatusTeapot || !strings.HasPrefix(body, `<main><svg class="mark"`) ||
		!strings.HasSuffix(body, "&lt;b</b></main>") || strings.Contains(body, "\u202e") || len(all) != 1 {
		t.Errorf("%d %s", w.Code, body)
	}
	w = httptest.NewRecorder()
	fail := template.FuncMap{"fail": func() (string, error) { return "", http.ErrAbortHandler }}
	err := ParseTemplates(page("half a page{{fail}}"), fail).Answer(w, http.StatusOK, "one", nil)
	if err == nil || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("%v, and was sent %q", err, w.Body)
	}
}

func TestStatic_NamesFilesByContent(t *testing.T) {
	t.Parallel()
	files := page("")
	s := NewStatic("/static/", files)
	files["static/app.css"].Data = []byte("main { color: blue; }")
	if other := NewStatic("/static/", files); other.URL("app.css") == s.URL("app.css") ||
		other.URL("icon.svg") != s.URL("icon.svg") {
		t.Errorf("%s and %s", s.URL("app.css"), other.URL("app.css"))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/{file}", s)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.URL("app.css"), nil))
	if body := w.Body.String(); !strings.HasPrefix(body, "/*") || !strings.Contains(body, "--accent:") ||
		!strings.HasSuffix(body, "color: red; }") || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%s\n%s", w.Header(), body)
	}
}

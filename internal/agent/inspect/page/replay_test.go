// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// fieldsOf returns the fields of the form that an exchange's page of changes shows, as a browser
// sends them.
func fieldsOf(s *site, e *inspect.Exchange, reveal bool) url.Values {
	p := (&replays{s.rec}).pageOf(e, reveal)
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	form := url.Values{"edited": {"1"}, "method": {p.Method}, "target": {p.Target}, "header": {crlf(p.Header)},
		"body": {crlf(p.Body)}}
	if reveal {
		form.Set("revealed", "1")
	}
	return form
}

func TestReplay_SendsOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, secretExchange())
	e, _ := s.rec.Get("secret")
	for name, c := range map[string]struct {
		edit func(url.Values)
		want func(inspect.Change) bool
	}{
		"nothing": {func(url.Values) {}, func(c inspect.Change) bool {
			return c.Method == "" && c.Path == "" && c.Header == nil && c.Body == nil
		}},
		"method": {func(f url.Values) { f.Set("method", "PUT") }, func(c inspect.Change) bool {
			return c.Method == "PUT" && c.Path == "" && c.Header == nil && c.Body == nil
		}},
		"path": {func(f url.Values) { f.Set("target", "/other?a=b") }, func(c inspect.Change) bool {
			return c.Path == "/other?a=b" && c.Header == nil
		}},
		"header": {func(f url.Values) { f.Set("header", f.Get("header")+"x-new: 1\r\n") }, func(c inspect.Change) bool {
			return c.Header.Get("X-New") == "1" && c.Header.Get("Authorization") == inspect.Masked && c.Body == nil
		}},
		"body": {func(f url.Values) { f.Set("body", "a=1\r\nb=2") }, func(c inspect.Change) bool {
			return string(c.Body) == "a=1\nb=2" && c.Header.Get("Authorization") == "Bearer "+secretBearer
		}},
	} {
		form := fieldsOf(s, e, false)
		c.edit(form)
		res, body := s.post("/requests/secret/replay", form)
		if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(res.Header.Get("Location"),
			"/requests/replay-") {
			t.Errorf("%s: %s: %s", name, res.Status, body)
			continue
		}
		if got := s.rec.lastReplay(); !c.want(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if res, _ := s.post("/requests/secret/replay", nil); res.StatusCode != http.StatusSeeOther {
		t.Errorf("once more, as it was: %s", res.Status)
	}
}

func TestReplay_ExplainsWhatItRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, secretExchange(), rawExchange())
	e, _ := s.rec.Get("secret")
	for field, value := range map[string]string{"method": "GE T", "target": "http://elsewhere/", "header": "no colon",
		"body": "password=" + inspect.Masked + "&more=1"} {
		form := fieldsOf(s, e, false)
		form.Set(field, value)
		res, body := s.post("/requests/secret/replay", form)
		if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s %q: %s", field, value, res.Status)
		}
	}
	for _, value := range []string{"/a b", "/a\r\nX: y", "/?token=" + inspect.Masked} {
		form := fieldsOf(s, e, false)
		form.Set("target", value)
		if res, _ := s.post("/requests/secret/replay", form); res.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("path %q: %s", value, res.Status)
		}
	}
	form := fieldsOf(s, e, false)
	form.Set("header", "A: b\x01")
	if res, _ := s.post("/requests/secret/replay", form); res.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a control character in a header: %s", res.Status)
	}
	for _, path := range []string{"/requests/raw/replay", "/requests/none/replay"} {
		if res, _ := s.post(path, nil); res.StatusCode != http.StatusConflict && res.StatusCode != http.StatusNotFound {
			t.Errorf("POST %s: %s", path, res.Status)
		}
	}
	if len(s.rec.replayed()) != 0 {
		t.Errorf("refused forms were replayed: %+v", s.rec.replayed())
	}
}

func TestReplay_EditsDecodedBodies(t *testing.T) {
	t.Parallel()
	e := exchange("a", "POST", "/x", 200, "", "")
	e.Request.Header.Set("Content-Encoding", "gzip")
	e.Request.Body = gzipOf([]byte("one\r\ntwo"))
	s := newSite(t, nil, e)
	form := fieldsOf(s, e, true)
	form.Set("body", "one\r\nthree")
	if res, body := s.post("/requests/a/replay", form); res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s: %s", res.Status, body)
	}
	if c := s.rec.replayed()[0]; string(c.Body) != "one\r\nthree" || c.Header.Get("Content-Encoding") != "" {
		t.Errorf("%q, %v", c.Body, c.Header)
	}
}

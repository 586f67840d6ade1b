// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// FuzzCompile checks that a document is refused with positions that exist in it, or compiles,
// always to the same, and serves.
func FuzzCompile(f *testing.F) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(f, err)
		f.Add(string(text), false)
	}
	for _, m := range regexp.MustCompile("(?s)```(?:yaml|json)( tcp)?\n(.*?)```").FindAllStringSubmatch(docPages(f),
		-1) {
		f.Add(m[2], m[1] != "")
	}
	f.Add("\r\r0", false) // YAML has more line breaks than one
	f.Fuzz(func(t *testing.T, text string, tcp bool) {
		o := Options{}
		if tcp {
			o.Scheme = "tcp"
		}
		p, problems := Check(text, o)
		if (p == nil) != (len(problems) > 0) {
			t.Fatalf("policy %v with %v", p, problems)
		}
		lines := len(lineBreak.Split(text, -1)) + 1
		for _, m := range problems {
			if m.Line < 1 || m.Line > lines || m.Column < 1 || m.Msg == "" {
				t.Fatalf("%+v in a text of %d lines", m, lines)
			}
		}
		if p == nil {
			return
		}
		again, _ := Check(text, o)
		if again == nil || again.Facts().Digest != p.Facts().Digest {
			t.Fatal("the same text compiled to something else")
		}
		for _, c := range []*Conn{{}, fullConn()} {
			p.Connect(t.Context(), c)
			w := httptest.NewRecorder()
			called := 0
			p.ServeHTTP(w, httptest.NewRequest("GET", "/a?b=c", nil), c,
				forwardFunc(func(w http.ResponseWriter, r *http.Request, _ Target) {
					called++
					w.WriteHeader(502)
				}))
			if called > 1 {
				t.Fatalf("forward was called %d times", called)
			}
		}
	})
}

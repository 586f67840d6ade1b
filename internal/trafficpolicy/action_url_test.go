// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http/httptest"
	"testing"
)

// TestURLSubstitution_ChecksGroups checks that a reference to a group that the pattern does not
// have is a mistake of the document, with its position, and that every other text stays as it was.
func TestURLSubstitution_ChecksGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"/a/(.*)", "/b/$2",
			`[line 3, column 59: the pattern of from has no group 2: it has 1; write $$ for the character $]`},
		{"/a/.*", "/é/$1",
			`[line 3, column 57: the pattern of from has no group 1: it has 0; write $$ for the character $]`},
		{"/a/(.*)", "/b/$1x",
			`[line 3, column 59: the pattern of from has no group "1x"; for group 1 with x after it write $${1}x]`},
		{"/a/(?P<rest>.*)", "/$rest/$tail",
			`[line 3, column 71: the pattern of from has no group "tail"; write $$ for the character $]`},
		{"/${req.method}/(.*)", "/$2",
			`[line 3, column 69: the pattern of from has no group 2: it has 1; write $$ for the character $]`},
		{"/a/(.*)", "/$0/$1/$${1}x/$$2/${req.method + '$9'}/$/$", "[]"},
		{"/a/(?P<rest>.*)", "/$rest/$${rest}x", "[]"},
		{"/[z-${req.method}]/(.*)", "/$7", "[]"}, // what the class will be is not known
	} {
		doc := onRequest("", fmt.Sprintf("{type: url-rewrite, config: {from: '%s', to: \"%s\"}}", c.from, c.to))
		_, problems := Check(doc, Options{})
		if _, err := Compile(doc, Options{Stored: true}); err != nil {
			t.Errorf("one that is in force stops: %v", err)
		}
		if got := fmt.Sprint(problems); got != c.want {
			t.Errorf("%s -> %s: %s\nwant %s", c.from, c.to, got, c.want)
		}
	}
	p := compile(t, onRequest("", "{type: redirect, config: {from: '^.*/a/(.*)', to: '/$${1}x/$$2/$0'}}"))
	res := do(t, p, fullConn(), httptest.NewRequest("GET", "http://h/a/b", nil))
	if got := res.Header.Get("Location"); got != "/bx/$2/https://h/a/b" {
		t.Errorf("redirected to %q", got)
	}
}

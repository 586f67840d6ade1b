// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package redact_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

func mark(secret string) string {
	return fmt.Sprintf("redacted:%08x", crc32.ChecksumIEEE([]byte(secret)))
}

var documents = map[string]string{
	"JSON": `{"on_http_request":[{"actions":[{"type":"oidc","config":{"client_secret":"hush",` +
		`"client_id":"x","issuer_url":"https://a"}}]}]}`,
	"JSON with escapes": `{"password": "hu\"sh\\", "other": "é", "token" : "hush é ü"}`,
	"JSON with tabs":    "{\n\t\"client_secret\": \"hush\",\n\t\"x\": [1, 2]\n}",
	"YAML": "# a comment\non_http_request:\n  - name: é login # why\n    actions:\n      - type: oidc\n " +
		"       config:\n          client_secret: hush   # comment\n          scopes: [a, b]\n",
	"basic-auth": "actions:\n  - type: basic-auth\n    config:\n      credentials:\n        - user:hush\n     " +
		"   - 'other:hu''sh'\n      realm: x\n",
	"basic-auth, flow":   "actions: [{type: basic-auth, config: {credentials: [user:hush, \"a:hush\"], realm: x}}]\n",
	"passwords in a map": "config:\n  Passwords: {alice: hush, bob: 'hush2'}\n",
	"a block": "config:\n  private_key: |\n    -----BEGIN hush-----\n    hush\n\n    -----END hush-----\n  " +
		"after: x\n",
	"a folded block":     "config:\n  private_key: >-\n    hush\n      hush\n  after: x\n",
	"a block at the end": "private_key: |\n  hush\n  hush",
	"many lines, plain":  "config:\n  secret: hush\n    hush\n  after: x\n",
	"an anchor":          "x: &a hush\nconfig:\n  secret: *a\n",
	"a tag":              "secret: !!str hush\nx: y\n",
	"a number":           "password: 74757368\nx: y\n",
	"a header": "config:\n  headers:\n    Authorization: Bearer hush\n    X-Api-Key: hush\n    " +
		"X-Auth-Token: \"hush\"\n",
	"CRLF":                 "secret: hush\r\nx: y\r\n",
	"nested in a secret":   "tokens:\n  - name: hush\n    more: [hush]\n",
	"a secret of newlines": "secret: \"hush\\nhush\"\n",
}

func TestText_ReplacesSecretsOnly(t *testing.T) {
	t.Parallel()
	for name, text := range documents {
		shown := redact.Text(text, mark)
		if regexp.MustCompile(`hu.{0,2}sh|74757368`).MatchString(shown) || !strings.Contains(shown, "redacted:") {
			t.Errorf("%s: shows\n%s", name, shown)
		}
		// The same text comes back byte by byte; a changed one with the same secrets means the
		// same.
		back, err := redact.Restore(shown, text, mark)
		if err != nil || back != text {
			t.Errorf("%s: restored\n%s\n%v", name, back, err)
		}
		changed, err := redact.Restore("# new\n"+shown, text, mark)
		if err != nil || meaning(t, changed) != meaning(t, text) {
			t.Errorf("%s: restored to\n%s\n%v", name, changed, err)
		}
		if again := redact.Text(changed, mark); meaning(t, again) != meaning(t, shown) {
			t.Errorf("%s: redacted again\n%s", name, again)
		}
	}
}

func meaning(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	return fmt.Sprint(v)
}

func TestText_KeepsLayout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{documents["JSON"], strings.Replace(documents["JSON"], "hush", mark("hush"), 1)},
		{documents["JSON with tabs"], strings.Replace(documents["JSON with tabs"], "hush", mark("hush"), 1)},
		{documents["YAML"], strings.Replace(documents["YAML"], "hush", `"`+mark("hush")+`"`, 1)},
		{"a: b\nx: {c: d}", "a: b\nx: {c: d}"},
		{"secret: ''\ntoken: null\ntoken_required: true\n", "secret: ''\ntoken: null\ntoken_required: true\n"},
		{"", ""},
	} {
		if got := redact.Text(c.in, mark); got != c.want {
			t.Errorf("%s\nbecame\n%s", c.in, got)
		}
	}
}

func TestText_ReplacesInvalidDocument(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"secret: [hush", "a: b\n---\nsecret: hush\n", "\thush: x", "a: *hush"} {
		shown := redact.Text(text, mark)
		if shown != mark(text) {
			t.Errorf("%q became %q", text, shown)
		}
		if back, err := redact.Restore(shown, text, mark); back != text || err != nil {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	}
}

func TestRestore_RefusesUnknownMarks(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"", "x: y\n", "secret: other\n"} {
		_, err := redact.Restore("secret: "+mark("hush"), stored, mark)
		var unknown redact.UnknownMarkError
		if !errors.As(err, &unknown) || unknown.Mark != mark("hush") {
			t.Errorf("from %q: %v", stored, err)
		}
	}
	// A secret moves with its mark, and beside it a new one is given.
	got, err := redact.Restore("b: {client_secret: "+mark("hush")+"}\nc: {token: new}\n", "a: {client_secret: hush}\n",
		mark)
	if err != nil || meaning(t, got) != "map[b:map[client_secret:hush] c:map[token:new]]" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzRedact(f *testing.F) {
	for _, text := range documents {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown := redact.Text(text, mark)
		if back, err := redact.Restore(shown, text, mark); text != "" && (err != nil || back != text) {
			t.Errorf("%q shown as %q came back as %q, %v", text, shown, back, err)
		}
	})
}

func TestRestoreWith_KnowsFurtherSecrets(t *testing.T) {
	t.Parallel()
	const text = "a: {client_secret: typed, password: stored}\n"
	shown := redact.Text(text, mark)
	if _, err := redact.Restore(shown, "password: stored\n", mark); err == nil {
		t.Error("a secret that is neither stored nor given was found")
	}
	got, err := redact.RestoreWith(shown, "password: stored\n", []string{"typed"}, mark)
	if err != nil || meaning(t, got) != meaning(t, text) {
		t.Errorf("restored %q, %v", got, err)
	}
	if all := redact.Secrets(text); len(all) != 2 {
		t.Errorf("secrets %q", all)
	}
	if all := redact.Secrets(shown); len(all) != 0 {
		t.Errorf("marks are secrets: %q", all)
	}
	if !redact.Valid(text) || !redact.Valid("") || redact.Valid("a: [") || redact.Secrets("password: [x") != nil {
		t.Error("a document is not told from a text that is none")
	}
}

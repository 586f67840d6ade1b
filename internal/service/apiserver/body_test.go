// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// FuzzBody: a body is read as encoding/json would read it, or refused with a code of ours; nothing
// of it gets lost unsaid.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{}`, `{"description":"a","metadata":null}`,
		`{"binding":{"endpoint_selectors":["a",1],"csr":7}}`, `{"a":1,"a":2}`,
		`{"deployment":null,"x":{"y":[]}}`, `[]`, `{"description":"\ud800"}`, `{"":""}`, "{\"\\u0000\":1}",
		`{"enabled_features":["bindings"]} x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !utf8.ValidString(raw) {
			return // readBody refuses it
		}
		b, err := parseBody([]byte(raw))
		var std map[string]any
		stdErr := json.Unmarshal([]byte(raw), &std)
		if (err == nil) != (stdErr == nil && std != nil) {
			t.Fatalf("%q: ours %v, encoding/json %v", raw, err, stdErr)
		}
		if err != nil {
			if account.CodeOf(err) != account.CodeMalformed {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		patch := readOperatorPatch(b.top)
		if text, ok := std["description"].(string); ok && len(b.fieldErrors) == 0 &&
			(patch.Description == nil || *patch.Description != text) {
			t.Fatalf("%q: description %v, want %q", raw, patch.Description, text)
		}
		known := "description metadata enabled_features region deployment binding"
		for name := range std {
			if !strings.Contains(known, name) && b.err(nil) == nil {
				t.Fatalf("%q: unknown field %q is not told", raw, name)
			}
		}
		for _, broken := range b.fieldErrors {
			if broken.Field == "" && !strings.Contains(raw, `""`) || broken.Rule == "" ||
				!utf8.ValidString(broken.Value) {
				t.Fatalf("%q: %+v", raw, broken)
			}
		}
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// TestCompile_Golden compares every mistake or the summary of each document in testdata.
func TestCompile_Golden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			got := report(string(text))
			golden := strings.TrimSuffix(file, ".in.yaml") + ".out.txt"
			if *update {
				must.Succeed(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must.Succeed(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if strings.Contains(file, "secrets") &&
				(strings.Contains(got, "hunter2") || strings.Contains(got, "987654321")) {
				t.Error("a message repeats a credential")
			}
		})
	}
}

func report(text string) string {
	p, problems := Check(text, Options{})
	var b strings.Builder
	for _, m := range problems {
		fmt.Fprintf(&b, "%d:%d: %s\n", m.Line, m.Column, m.Msg)
		if m.Value != "" {
			fmt.Fprintf(&b, "\t%q\n", m.Value)
		}
	}
	if p != nil {
		s := p.Summary()
		fmt.Fprintf(&b, "phases %s\nrules %d\nactions %s\nbackends %s\ndigest %s\n", strings.Join(s.Phases, " "),
			s.Rules,
			strings.Join(s.Actions, " "),
			strings.Join(p.Facts().Backends, " "), p.Facts().Digest)
	}
	return b.String()
}

// TestFacts_DigestMeaning checks that texts that mean the same have the same digest, and others
// have another.
func TestFacts_DigestMeaning(t *testing.T) {
	t.Parallel()
	digest := func(file string) string {
		text, err := os.ReadFile("testdata/" + file)
		must.Succeed(t, err)
		return compile(t, string(text)).Facts().Digest
	}
	a := digest("valid.in.yaml")
	if b := digest("valid-json.in.yaml"); a != b {
		t.Errorf("YAML and JSON of one policy have the digests %s and %s", a, b)
	}
	seen := map[string]string{a: "valid.in.yaml"}
	for _, text := range []string{
		"on_http_request: [{actions: [{type: deny}]}]",
		"on_http_request: [{name: a, actions: [{type: deny}]}]",
		"on_tcp_connect: [{actions: [{type: deny}]}]",
		"on_http_request: [{actions: [{type: deny, config: {status_code: 404}}]}]",
		"on_http_request: [{actions: [{type: deny}]}, {actions: [{type: deny}]}]",
		"on_http_request: [{actions: [{type: deny}, {type: deny}]}]",
		"on_http_request: [{actions: [{type: custom-response, config: {body: '12'}}]}]",
		"on_http_request: [{actions: [{type: custom-response, config: {body: '0x0c'}}]}]",
		"on_http_request: [{actions: [{type: custom-response, config: {body: 'true'}}]}]",
	} {
		d := compile(t, text).Facts().Digest
		if seen[d] != "" {
			t.Errorf("%s and %s have one digest", text, seen[d])
		}
		seen[d] = text
	}
	for _, empty := range []string{"", "# nothing\n", "{}", "null", "on_http_request: []", "on_http_request:\n"} {
		if d := compile(t, empty).Facts().Digest; d != "" {
			t.Errorf("%q has the digest %s", empty, d)
		}
	}
}

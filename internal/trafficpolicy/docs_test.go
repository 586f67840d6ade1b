// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// docPages returns the text of all pages about traffic policies.
func docPages(t testing.TB) string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/use/traffic-policy/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	var text strings.Builder
	for _, name := range pages {
		b, err := os.ReadFile(name)
		must.Succeed(t, err)
		text.Write(b)
	}
	return text.String()
}

// TestDocs_ExamplesCompile checks that every example of the pages compiles; "yaml tcp" is one for a
// tcp endpoint.
func TestDocs_ExamplesCompile(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```(yaml|json)( tcp)?\n(.*?)```").FindAllStringSubmatch(docPages(t), -1)
	used := map[string]bool{}
	for _, b := range blocks {
		p := compile(t, b[3], Options{Scheme: strings.TrimSpace(b[2])})
		for _, name := range p.Summary().Actions {
			used[name] = true
		}
	}
	for _, k := range actionTypes {
		if !used[k.name] {
			t.Errorf("the pages have no example of %s", k.name)
		}
	}
}

// TestDocs_LoginExamplesCompile checks that every policy on the pages about identity providers
// compiles for a public endpoint. What follows a login has pages without one.
func TestDocs_LoginExamplesCompile(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/identity/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	for _, name := range pages {
		if base := filepath.Base(name); base == "sessions.md" || base == "retention.md" {
			continue
		}
		text, err := os.ReadFile(name)
		must.Succeed(t, err)
		blocks := regexp.MustCompile("(?s)```yaml\n(on_.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no policy", name)
		}
		for _, b := range blocks {
			compile(t, b[1], Options{Scheme: "https", Binding: account.BindingPublic})
		}
	}
}

// TestDocs_NameEverything checks that the pages name every variable and action.
func TestDocs_NameEverything(t *testing.T) {
	t.Parallel()
	text := docPages(t)
	for _, v := range variables() {
		v.name = strings.Replace(v.name, "actions.ngrok.", "actions.", 1) // the page says so of all of them
		last := v.name[strings.LastIndexByte(v.name, '.'):]
		if !strings.Contains(text, "`"+v.name+"`") && !strings.Contains(text, "`"+last+"`") {
			t.Errorf("the pages do not name %s", v.name)
		}
	}
	for _, k := range actionTypes {
		for _, p := range k.phases {
			row := regexp.MustCompile("(?m)^\\| .*`" + k.name + "`.*`" + p.String() + "`")
			if !row.MatchString(text) {
				t.Errorf("the table of actions lacks that %s runs in %s", k.name, p)
			}
		}
	}
}

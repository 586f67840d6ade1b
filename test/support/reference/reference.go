// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reference keeps the generated parts of pages of docs equal to what they describe. Input:
// a page, and the text that the code gives. With -update it writes the page; else it fails the test
// of a page that differs.
package reference

import (
	"cmp"
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the generated parts of pages and files")

// Block compares what is between the markers of a page with text, or writes it there. The page has
// the lines <!-- begin generated NAME --> and <!-- end generated NAME -->; what is around them is
// written by hand.
func Block(t *testing.T, page, name, text string) {
	t.Helper()
	src, err := os.ReadFile(page)
	must.Succeed(t, err)
	begin, end := "<!-- begin generated "+name+" -->\n", "<!-- end generated "+name+" -->\n"
	before, rest, began := strings.Cut(string(src), begin)
	_, after, ended := strings.Cut(rest, end)
	if !began || !ended {
		t.Fatalf("%s: the lines %s and %s are missing", page, begin, end)
	}
	File(t, page, before+begin+"\n"+strings.TrimSpace(linkDocs(page, text))+"\n\n"+end+after)
}

// File compares a file with text, or writes it.
func File(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o644))
	}
	src, err := os.ReadFile(file)
	must.Succeed(t, err)
	if diff := gocmp.Diff(strings.Split(string(src), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s differs from what it is generated from (-page +code); `make reference` writes it:\n%s", file, diff)
	}
}

// docsPath matches the path of a page, and a word with the path of a page in parentheses.
var docsPath = regexp.MustCompile(`(?:(\S+) \()?(docs/[\w/-]+\.md(?:#[a-z-]+)?)\)?`)

// linkDocs makes the paths of pages in a text links of the page.
func linkDocs(page, text string) string {
	from := path.Dir(strings.TrimLeft(filepath.ToSlash(page), "./"))
	return docsPath.ReplaceAllStringFunc(text, func(found string) string {
		m := docsPath.FindStringSubmatch(found)
		to, err := filepath.Rel(from, m[2])
		if err != nil {
			panic(err) // both are relative
		}
		return "[" + cmp.Or(m[1], m[2]) + "](" + filepath.ToSlash(to) + ")"
	})
}

// Row returns a row of a table. Its cells are texts in which only code between backticks has a
// meaning.
func Row(cells ...string) string {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(Escape(strings.Join(strings.Fields(cell), " ")), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// Header returns the head of a table.
func Header(cells ...string) string {
	return Row(cells...) + strings.Repeat("|---", len(cells)) + "|\n"
}

// Code returns text as code, and nothing for nothing.
func Code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Escape returns text for Markdown, in which only code between backticks has a meaning.
func Escape(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("*", `\*`, "<", `\<`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

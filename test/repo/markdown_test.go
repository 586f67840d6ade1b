// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	readmeLines  = 120
	markdownWide = 120 // columns, outside tables and code
)

func TestReadme_StaysShort(t *testing.T) {
	t.Parallel()
	if n := bytes.Count(read(t, "README.md"), []byte("\n")); n > readmeLines {
		t.Errorf("README.md: %d lines, at most %d: move what a newcomer can do without into docs/", n, readmeLines)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// notInAnchor are what GitHub leaves out of a heading's anchor.
var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// hasAnchor reports whether a heading of the document has the anchor.
func hasAnchor(document []byte, anchor string) bool {
	for line := range strings.Lines(string(document)) {
		heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || line[0] != '#' {
			continue
		}
		heading = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
		if strings.ReplaceAll(heading, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestMarkdown_LinksExist checks that links and pictures of the documents lead to files of the
// repository, and to headings of these.
func TestMarkdown_LinksExist(t *testing.T) {
	t.Parallel()
	for _, file := range tracked(t, "*.md") {
		for _, found := range link.FindAllSubmatch(read(t, file), -1) {
			u, err := url.Parse(string(found[1]))
			if err != nil || u.Scheme != "" {
				continue
			}
			target := file
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(file), u.Path)
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: the link %s: %v", file, found[1], err)
			} else if u.Fragment != "" && strings.HasSuffix(target, ".md") && !hasAnchor(read(t, target), u.Fragment) {
				t.Errorf("%s: the link %s: there is no such heading", file, found[1])
			}
		}
	}
}

// docPages returns the pages of docs by their names.
func docPages(t *testing.T) map[string][]byte {
	t.Helper()
	pages := map[string][]byte{}
	for _, file := range tracked(t, "docs/*.md") {
		pages[file] = read(t, file)
	}
	return pages
}

// TestMarkdown_PagesAreTwoLinksFromReadme checks that a reader finds every page of docs by at most
// two links, as from the README to a folder, and from there to the page.
func TestMarkdown_PagesAreTwoLinksFromReadme(t *testing.T) {
	t.Parallel()
	found, at := map[string]bool{}, []string{"README.md"}
	for range 2 {
		var next []string
		for _, file := range at {
			for _, target := range link.FindAllSubmatch(read(t, file), -1) {
				path, _, _ := strings.Cut(string(target[1]), "#")
				if path = filepath.Join(filepath.Dir(file), path); strings.HasSuffix(path, ".md") && !found[path] {
					found[path], next = true, append(next, path)
				}
			}
		}
		at = next
	}
	for page := range docPages(t) {
		if !found[page] {
			t.Errorf("%s: no page that the README names has a link to it", page)
		}
	}
}

func TestMarkdown_Width(t *testing.T) {
	t.Parallel()
	for _, file := range tracked(t, "*.md") {
		code := false
		for i, line := range strings.Split(string(read(t, file)), "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			if n := utf8.RuneCountInString(line); n > markdownWide && !code && !strings.HasPrefix(text, "|") &&
				strings.Contains(text, " ") {
				t.Errorf("%s:%d: %d columns, at most %d", file, i+1, n, markdownWide)
			}
		}
	}
}

var codeSpan = regexp.MustCompile("`([^`\n]+)`")

// The table of docs/build/architecture.md has a place for every folder with Go code, and for none
// that is gone.
func TestArchitecture_NamesEveryPackage(t *testing.T) {
	t.Parallel()
	folders, named := map[string]bool{}, map[string]bool{}
	for _, file := range goFiles(t) {
		folders[filepath.Dir(file)] = true
	}
	for line := range strings.Lines(string(read(t, "docs/build/architecture.md"))) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, span := range codeSpan.FindAllStringSubmatch(cells[2], -1) {
				named[span[1]] = true
			}
		}
	}
	covered := func(folder string) bool {
		for ; folder != "."; folder = filepath.Dir(folder) {
			if named[folder+"/..."] {
				return true
			}
		}
		return false
	}
	for folder := range folders {
		if !named[folder] && !covered(folder) {
			t.Errorf("docs/build/architecture.md: no row names `%s`: what does it own?", folder)
		}
	}
	for name := range named {
		if _, err := os.Stat(filepath.Join("../..", strings.TrimSuffix(name, "/..."))); err != nil {
			t.Errorf("docs/build/architecture.md: the table names `%s`: %v", name, err)
		}
	}
}

// TestContributing_NamesFilesThatExist checks that CONTRIBUTING.md answers "where do I …" with
// files that exist.
func TestContributing_NamesFilesThatExist(t *testing.T) {
	t.Parallel()
	found := 0
	for _, span := range codeSpan.FindAllStringSubmatch(string(read(t, "CONTRIBUTING.md")), -1) {
		if path := span[1]; strings.Contains(path, "/") && !strings.ContainsAny(path, " …<") &&
			path != "testing/synctest" {
			found++
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("CONTRIBUTING.md names `%s`: %v", path, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("CONTRIBUTING.md names only %d files", found)
	}
}

// listItem is an item of a list, with a number or an asterisk.
var listItem = regexp.MustCompile(`(?m)^(?:\d+\.|\*) .+(?:\n +.+)*`)

// maxFieldFiles is how many files a new field of an endpoint has to be added to, apart from those
// that use it.
const maxFieldFiles = 8

// TestContributing_FollowsOneField checks that the lists in the recipe for a field of an endpoint have
// those of the product's files that name UpstreamProtocol, and no others, and that at most
// maxFieldFiles of them are in numbered items.
func TestContributing_FollowsOneField(t *testing.T) {
	t.Parallel()
	_, recipe, found := strings.Cut(string(read(t, "CONTRIBUTING.md")), "\n**… add a field to an endpoint")
	recipe, _, _ = strings.Cut(recipe, "\n**… ")
	if !found {
		t.Fatal("CONTRIBUTING.md has no recipe for a field of an endpoint")
	}
	named, numbered := map[string]bool{}, 0
	for _, item := range listItem.FindAllString(recipe, -1) {
		for _, span := range codeSpan.FindAllStringSubmatch(item, -1) {
			if strings.HasSuffix(span[1], ".go") {
				named[span[1]] = true
				if item[0] != '*' {
					numbered++
				}
			}
		}
	}
	if numbered > maxFieldFiles {
		t.Errorf("CONTRIBUTING.md: a field of an endpoint is added to %d files, at most %d", numbered, maxFieldFiles)
	}
	for _, file := range goFiles(t) {
		if !isProduct(file) || !upstreamProtocol.Match(read(t, file)) {
			continue
		}
		if !named[file] {
			t.Errorf("CONTRIBUTING.md: `%s` names UpstreamProtocol, and no item of the recipe names the file", file)
		}
		delete(named, file)
	}
	for file := range named {
		t.Errorf("CONTRIBUTING.md: the recipe names `%s`, which does not name UpstreamProtocol", file)
	}
}

// screen is how many lines of a page a reader sees at once.
const screen = 30

// readers and example are what a page begins with: for whom it is, and a command, a snippet or a
// sentence that shows a case.
var (
	readers = regexp.MustCompile(`^# .+\n\nFor [a-z]+[ .,]`)
	example = regexp.MustCompile("(?m)^```|^    \\S|[Ff]or example,? ")
)

// TestMarkdown_PagesBeginWithReadersAndExample checks that the first lines of each page of docs say
// for whom it is, and that a reader sees an example without scrolling.
func TestMarkdown_PagesBeginWithReadersAndExample(t *testing.T) {
	t.Parallel()
	for file, page := range docPages(t) {
		if !readers.Match(page) {
			t.Errorf("%s: say below the title for whom it is: `For those who …`", file)
		}
		lines := bytes.SplitAfter(page, []byte("\n"))
		if !example.Match(bytes.Join(lines[:min(screen, len(lines))], nil)) {
			t.Errorf("%s: no example in the first %d lines: a command, a snippet, or a case", file, screen)
		}
	}
}

// packagePath is what a command gives to `go test`, with at most one list of folders in braces.
var packagePath = regexp.MustCompile(`\./([a-z0-9/-]+)(?:\{([^}]+)\})?`)

// TestTesting_RoomsExist checks that what docs/build/testing.md has to run for a change in one room
// exists.
func TestTesting_RoomsExist(t *testing.T) {
	t.Parallel()
	_, rooms, _ := strings.Cut(string(read(t, "docs/build/testing.md")), "\n## What to run for a change in one room\n")
	rooms, _, _ = strings.Cut(rooms, "\n## ")
	found := packagePath.FindAllStringSubmatch(rooms, -1)
	if len(found) < 20 {
		t.Fatalf("docs/build/testing.md has only %d packages to test", len(found))
	}
	for _, path := range found {
		for _, folder := range strings.Split(path[2], ",") {
			if _, err := os.Stat(filepath.Join("../..", path[1], folder)); err != nil {
				t.Errorf("docs/build/testing.md: %v", err)
			}
		}
	}
}

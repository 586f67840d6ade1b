// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vagueWords do not name the actor, or tell of the work instead of the code: nobody, somebody,
// whoever, "sees to it", "says whether", mission, product.md.
var vagueWords = regexp.MustCompile(
	`(?i)\b(nobody|somebody|whoever|sees\s+to\s+it|says\s+whether|mission|product\.md)\b`)

// wordsAllowedIn are the folders, with all below them, whose comments or pages still have
// vagueWords. Remove a folder from the list when it is clean.
var wordsAllowedIn = []string{
	"api", "charts", "cmd", "config", "docs", "hack", "packaging", "internal", "test", "tools", ".",
}

// wordsCheckedIn are folders below those of wordsAllowedIn that are clean already.
var wordsCheckedIn = []string{"internal/service/clientlimit", "test/repo"}

func TestWords_NameTheActor(t *testing.T) {
	t.Parallel()
	report := func(file string, line int, text string) {
		for _, word := range vagueWords.FindAllString(text, -1) {
			t.Errorf("%s:%d: %q: name the actor, or say what the code does", file, line, word)
		}
	}
	for _, file := range slices.Concat(goFiles(t), tracked(t, "*.md")) {
		if !wordsChecked(file) || file == "test/repo/words_test.go" {
			continue
		}
		src := read(t, file)
		if strings.HasSuffix(file, ".md") {
			for i, line := range strings.Split(string(src), "\n") {
				report(file, i+1, line)
			}
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range parsed.Comments {
			report(file, fset.Position(group.Pos()).Line, group.Text())
		}
	}
}

// wordsChecked reports whether a file lies in no folder of wordsAllowedIn, or in one of
// wordsCheckedIn.
func wordsChecked(file string) bool {
	in := func(folder string) bool {
		return folder == "." && filepath.Dir(file) == "." || strings.HasPrefix(file, folder+"/")
	}
	return slices.ContainsFunc(wordsCheckedIn, in) || !slices.ContainsFunc(wordsAllowedIn, in)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// vagueWords do not name the actor, or tell of the work instead of the code: nobody, somebody,
// whoever, "sees to it", "says whether", mission, product.md.
var vagueWords = regexp.MustCompile(
	`\b([Nn]obody|[Ss]omebody|[Ww]hoever|[Ss]ees\s+to\s+it|[Ss]ays\s+whether|[Mm]ission|product\.md)\b`)

func TestWords_NameTheActor(t *testing.T) {
	t.Parallel()
	report := func(file string, line int, text string) {
		for _, word := range vagueWords.FindAllString(text, -1) {
			t.Errorf("%s:%d: %q: name the actor, or say what the code does", file, line, word)
		}
	}
	for _, file := range slices.Concat(goFiles(t), tracked(t, "*.md")) {
		if file == "test/repo/words_test.go" {
			continue
		}
		src := read(t, file)
		if strings.HasSuffix(file, ".md") {
			for i, line := range strings.Split(string(src), "\n") {
				report(file, i+1, codeSpan.ReplaceAllString(line, ""))
			}
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments)
		must.Succeed(t, err)
		for _, group := range parsed.Comments {
			report(file, fset.Position(group.Pos()).Line, group.Text())
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const readingPage = "docs/build/reading.md"

var (
	// goName is a function, a type, or a type and its method.
	goName    = regexp.MustCompile(`^[A-Za-z]\w*(\.[A-Za-z]\w*)?$`)
	statedSum = regexp.MustCompile(`(\d+) files, ([\d,]+) lines`)
)

// TestReading_NamesWhatExists checks that the items of the page name files that exist, and types and
// functions of those files, and that the numbered files have as many lines as the page says.
func TestReading_NamesWhatExists(t *testing.T) {
	t.Parallel()
	page, known := string(read(t, readingPage)), goFiles(t)
	files, lines := 0, 0
	for _, item := range listItem.FindAllString(page, -1) {
		declared := map[string]bool{}
		var names []string
		for i, span := range codeSpan.FindAllStringSubmatch(item, -1) {
			switch name := span[1]; {
			case !strings.HasSuffix(name, ".go"):
				names = append(names, name)
			case !slices.Contains(known, name):
				t.Errorf("%s names `%s`: git knows no such file", readingPage, name)
			default:
				declare(t, name, declared)
				if i == 0 && item[0] != '*' {
					files++
					lines += bytes.Count(read(t, name), []byte("\n"))
				}
			}
		}
		for _, name := range names {
			if goName.MatchString(name) && !declared[name] {
				t.Errorf("%s: no file of this item declares `%s`:\n%s", readingPage, name, item)
			}
		}
	}
	stated := statedSum.FindStringSubmatch(page)
	if stated == nil || stated[1] != strconv.Itoa(files) || !near(lines, stated[2]) {
		t.Errorf("%s: its first sentence should say \"%d files, %s lines\"", readingPage, files, rounded(lines))
	}
}

// declare adds the functions, types and methods that a Go file declares.
func declare(t *testing.T, file string, names map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), 0)
	must.Succeed(t, err)
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					names[spec.Name.Name] = true
				}
			}
		}
	}
}

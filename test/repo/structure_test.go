// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Limits of one type and one package: past them it has more than one subject.
const (
	maxTypeFiles    = 6
	maxTypeMethods  = 40
	maxOptions      = 15 // fields of a struct of options
	maxPackageFiles = 40
	maxPageBytes    = 25_000 // of a page of docs
)

// ceilings are how many exceed a limit, or there are of a kind, at most. A change that lowers a
// figure lowers its ceiling; none raises one.
var ceilings = map[string]int{
	"types in more than 6 files":       0,
	"types with more than 40 methods":  0,
	"structs of more than 15 options":  0,
	"packages of more than 40 files":   0,
	"struct fields that are functions": 78,
	"comments that begin with \"of\"":  12,
	"files that name UpstreamProtocol": 11,
	"lines of product":                 137_900,
	"pages of docs over 25 kB":         0,
}

var upstreamProtocol = regexp.MustCompile(`(?i)upstream[_-]?protocol`)

// isProduct reports whether a Go file is of the product: neither one of tests nor generated.
func isProduct(file string) bool {
	folders := strings.Split(filepath.Dir(file), "/")
	return slices.Contains([]string{"cmd", "api", "sdk", "internal"}, folders[0]) &&
		!strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "zz_generated")
}

// structure is the product's Go code, counted.
type structure struct {
	files    map[string]map[string]bool // by type, as folder.Name: where it and its methods stand
	methods  map[string]int             // by type
	options  map[string]int             // fields, by type
	packages map[string]int             // files, by folder
	counts   map[string]int             // what ceilings name
}

func TestStructure_StaysBelowCeilings(t *testing.T) {
	t.Parallel()
	s := countStructure(t)
	exceeding := map[string][]string{
		"types in more than 6 files": namesOver(s.files, func(at map[string]bool) int { return len(at) },
			maxTypeFiles),
		"types with more than 40 methods": namesOver(s.methods, identity, maxTypeMethods),
		"structs of more than 15 options": namesOver(s.options, identity, maxOptions),
		"packages of more than 40 files":  namesOver(s.packages, identity, maxPackageFiles),
		"pages of docs over 25 kB": namesOver(docPages(t), func(page []byte) int { return len(page) },
			maxPageBytes),
	}
	for measure, names := range exceeding {
		s.counts[measure] = len(names)
	}
	for _, measure := range slices.Sorted(maps.Keys(ceilings)) {
		t.Logf("%s: %d of %d", measure, s.counts[measure], ceilings[measure])
		if s.counts[measure] > ceilings[measure] {
			t.Errorf("%s: %d, at most %d; %s", measure, s.counts[measure], ceilings[measure],
				strings.Join(exceeding[measure], ", "))
		}
	}
}

func identity(n int) int { return n }

// namesOver returns the keys whose values exceed the limit.
func namesOver[V any](values map[string]V, size func(V) int, limit int) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if size(values[name]) > limit {
			names = append(names, name)
		}
	}
	return names
}

func countStructure(t *testing.T) *structure {
	t.Helper()
	s := &structure{files: map[string]map[string]bool{}, methods: map[string]int{}, options: map[string]int{},
		packages: map[string]int{}, counts: map[string]int{}}
	for _, file := range goFiles(t) {
		if !isProduct(file) {
			continue
		}
		src := read(t, file)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ParseComments)
		must.Succeed(t, err)
		s.packages[filepath.Dir(file)]++
		s.counts["lines of product"] += strings.Count(string(src), "\n")
		if upstreamProtocol.Match(src) {
			s.counts["files that name UpstreamProtocol"]++
		}
		s.addComments(parsed)
		s.addTypes(file, parsed)
	}
	return s
}

func (s *structure) addComments(f *ast.File) {
	for _, group := range f.Comments {
		if strings.HasPrefix(group.List[0].Text, "// of ") {
			s.counts["comments that begin with \"of\""]++
		}
	}
}

// addTypes counts the types that a file declares or gives methods.
func (s *structure) addTypes(file string, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			s.place(file, n.Name.Name)
			fields, ok := n.Type.(*ast.StructType)
			if ok && strings.HasSuffix(strings.ToLower(n.Name.Name), "options") {
				s.options[filepath.Dir(file)+"."+n.Name.Name] = fields.Fields.NumFields()
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if _, ok := field.Type.(*ast.FuncType); ok {
					s.counts["struct fields that are functions"] += max(1, len(field.Names))
				}
			}
		case *ast.FuncDecl:
			if n.Recv != nil {
				s.methods[s.place(file, receiver(n.Recv.List[0].Type))]++
			}
		}
		return true
	})
}

// place adds the file to those of a type of its package, and returns the type.
func (s *structure) place(file, name string) string {
	name = filepath.Dir(file) + "." + name
	if s.files[name] == nil {
		s.files[name] = map[string]bool{}
	}
	s.files[name][file] = true
	return name
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

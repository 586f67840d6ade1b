// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// A -run expression that matches no test passes without a word: the ones of the Makefile, the
// scripts and the documents name tests that exist, or the beginning of their names.
func TestMakefile_NamesTestsThatExist(t *testing.T) {
	t.Parallel()
	var all []string
	for _, file := range tracked(t, "*_test.go") {
		for _, found := range testFunc.FindAllSubmatch(read(t, file), -1) {
			all = append(all, string(found[1]))
		}
	}
	names := "\n" + strings.Join(all, "\n")
	for _, pattern := range []string{"Makefile", "hack/*", ".ci/*", "docs/*.md", "CONTRIBUTING.md"} {
		for _, file := range tracked(t, pattern) {
			for _, name := range testName.FindAllString(string(read(t, file)), -1) {
				if !strings.Contains(names, "\n"+name) {
					t.Errorf("%s names %s: no such test", file, name)
				}
			}
		}
	}
}

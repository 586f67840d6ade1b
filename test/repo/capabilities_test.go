// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const capabilitiesPage = "docs/build/capabilities.md"

// capability is a row of the table: its cells, and how many lines its folders have.
type capability struct {
	promise, folders, product, others string
	productLines, otherLines          int
}

// TestCapabilities_HaveAllCode checks that each folder with Go code belongs to one row of the table,
// and that the rows have as many lines as the page says. A folder belongs to the row that names it,
// else to the one that names the nearest folder above it with "/...".
func TestCapabilities_HaveAllCode(t *testing.T) {
	t.Parallel()
	rows, byName := capabilities(t)
	used := map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.Contains(file, "zz_generated") {
			continue
		}
		folder := filepath.Dir(file)
		name := nameFor(folder, byName)
		row, n := byName[name], bytes.Count(read(t, file), []byte("\n"))
		switch {
		case row == nil && !used[folder]:
			t.Errorf("%s: no row names `%s`: which promise is it for?", capabilitiesPage, folder)
			name = folder
		case row == nil:
		case isProduct(file):
			row.productLines += n
		default:
			row.otherLines += n
		}
		used[name] = true
	}
	for name := range byName {
		if !used[name] {
			t.Errorf("%s names `%s`, where no Go code belongs to the row", capabilitiesPage, name)
		}
	}
	total := rows[len(rows)-1]
	for _, row := range rows[:len(rows)-1] {
		total.productLines += row.productLines
		total.otherLines += row.otherLines
	}
	for _, row := range rows {
		if !near(row.productLines, row.product) || !near(row.otherLines, row.others) {
			t.Errorf("%s: the row should be\n|%s|%s| %s | %s |", capabilitiesPage, row.promise, row.folders,
				rounded(row.productLines), rounded(row.otherLines))
		}
	}
}

// capabilities returns the rows of the table, of which the last one is the total, and the row that
// names a folder.
func capabilities(t *testing.T) (rows []*capability, byName map[string]*capability) {
	t.Helper()
	for line := range strings.Lines(string(read(t, capabilitiesPage))) {
		if cells := strings.Split(line, "|"); len(cells) == 6 {
			rows = append(rows, &capability{promise: cells[1], folders: cells[2], product: cells[3], others: cells[4]})
		}
	}
	if len(rows) < 10 {
		t.Fatalf("%s: found only %d rows", capabilitiesPage, len(rows))
	}
	rows = rows[2:] // without the head
	byName = map[string]*capability{}
	for _, row := range rows {
		for _, span := range codeSpan.FindAllStringSubmatch(row.folders, -1) {
			if byName[span[1]] != nil {
				t.Errorf("%s: two rows name `%s`", capabilitiesPage, span[1])
			}
			byName[span[1]] = row
		}
	}
	return rows, byName
}

// nameFor returns by which name a folder belongs to a row.
func nameFor(folder string, byName map[string]*capability) string {
	name := folder
	for above := folder; byName[name] == nil && above != "."; above = filepath.Dir(above) {
		name = above + "/..."
	}
	return name
}

// near reports whether a page states a number of lines to within a tenth.
func near(lines int, stated string) bool {
	n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(stated), ",", ""))
	return err == nil && max(n-lines, lines-n)*10 <= lines
}

// rounded returns a number of lines as a page states it: in hundreds, or in tens below a thousand.
func rounded(lines int) string {
	unit := 100
	if lines < 1000 {
		unit = 10
	}
	text := []byte(strconv.Itoa((lines + unit/2) / unit * unit))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = slices.Insert(text, i, ',')
	}
	return string(text)
}

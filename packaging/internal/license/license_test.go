// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package license

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mit = `MIT License

Copyright (c) 2026 The Authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

const isc = `Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY
AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM
LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR
OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
PERFORMANCE OF THIS SOFTWARE.
`

const gpl = `This program is free software: you can redistribute it and/or modify
it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or
(at your option) any later version.

This program is distributed in the hope that it will be useful,
but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
GNU General Public License for more details.

You should have received a copy of the GNU General Public License
along with this program.  If not, see <https://www.gnu.org/licenses/>.
`

// cache returns a Finder for a module cache with one module, example.com/m v1.0.0.
func cache(t *testing.T, files map[string]string) *Finder {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "example.com", "m@v1.0.0")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Finder{modCache: dir, found: map[Module]Licenses{}}
}

func TestFinder_ReadsEveryFileOfTerms(t *testing.T) {
	t.Parallel()
	finder := cache(t, map[string]string{
		"LICENSE": mit, "COPYING.libyaml": isc, "NOTICE": "by the authors", "README.md": gpl, "license.go": gpl,
	})
	got, err := finder.Licenses(Module{Path: "example.com/m", Version: "v1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, text := range got.Texts {
		names = append(names, text.Name)
	}
	if want := []string{"COPYING.libyaml", "LICENSE", "NOTICE"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	if want := "ISC AND MIT"; got.Expression() != want {
		t.Errorf("licences %q, want %q", got.Expression(), want)
	}
}

func TestFinder_RefusesUnknownAndForbiddenLicences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		files      map[string]string
		want       []string
	}{
		{"none", "example.com/m", map[string]string{"README.md": mit},
			[]string{"module example.com/m has no file with a licence"}},
		{"not permitted", "example.com/m", map[string]string{"LICENSE": gpl},
			[]string{"example.com/m/LICENSE", "GPL-3.0", "not one of the permitted ones: ", "Apache-2.0"}},
		{"one of two not permitted", "example.com/m", map[string]string{"LICENSE": mit, "LICENSE.gpl": gpl},
			[]string{"example.com/m/LICENSE.gpl", "GPL-3.0"}},
		{"own words", "example.com/m", map[string]string{"LICENSE": "You may read this code, but not run it."},
			[]string{"example.com/m/LICENSE: 0% of the text is a known licence"}},
		{"mostly own words", "example.com/m",
			map[string]string{"LICENSE": isc + strings.Repeat("Pay for every call. ", 200)},
			[]string{"example.com/m/LICENSE: ", "read it"}},
		{"not in the cache", "example.com/other", nil, []string{"example.com/other is not in the module cache"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := cache(t, c.files).Licenses(Module{Path: c.path, Version: "v1.0.0"})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestIdentify_LimitsExceptionsToReadText(t *testing.T) {
	t.Parallel()
	_, err := identify("modernc.org/sqlite/LICENSE-SQLITE", []byte("SQLite costs money"))
	if err == nil || !strings.Contains(err.Error(), "was changed since its text was read") {
		t.Errorf("got %v", err)
	}
}

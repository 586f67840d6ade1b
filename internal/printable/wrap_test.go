// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import "testing"

func TestWrap_KeepsExamples(t *testing.T) {
	t.Parallel()
	const text = "One two three four\nfive six.\n\nExamples:\n  a line that is longer than the width\n  b\nSeven " +
		"eightandnineandten eleven"
	const want = "One two\nthree four\nfive six.\n\nExamples:\n  a line that is longer than the width\n  " +
		"b\nSeven\neightandnineandten\neleven"
	if got := Wrap(text, 10); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Wrap("", 10); got != "" {
		t.Errorf("nothing becomes %q", got)
	}
}

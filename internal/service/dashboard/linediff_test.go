// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"
)

func TestDiffLines_RebuildsBothTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""}, {"a\n", "a", " a"}, {"", "a\nb", "+a +b"}, {"a\nb", "", "-a -b"},
		{"a\nb\nc", "a\nx\nc", " a -b +x  c"}, {"a\nb", "b\na", "-a  b +a"}, {"a\r\nb\r\n", "a\nb\n", " a  b"},
		{"a\na\nb", "a\nb", " a -a  b"},
	} {
		var got []string
		var old, now []string
		for _, line := range diffLines(c.before, c.after) {
			got = append(got, line.Op+line.Text)
			if line.Old > 0 {
				old = append(old, line.Text)
			}
			if line.New > 0 {
				now = append(now, line.Text)
			}
			if line.Old > 0 && line.Old != len(old) || line.New > 0 && line.New != len(now) {
				t.Errorf("%q to %q: line %+v has a wrong number", c.before, c.after, line)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q to %q: %q, want %q", c.before, c.after, text, c.want)
		}
		if strings.Join(old, "\n") != strings.Join(splitLines(c.before), "\n") ||
			strings.Join(now, "\n") != strings.Join(splitLines(c.after), "\n") {
			t.Errorf("%q to %q: the lines are not those of the texts", c.before, c.after)
		}
	}
}

// TestDiffLines_BoundsWork compares texts of as many lines as a policy can have, of which every
// second is in both: none of these is looked for.
func TestDiffLines_BoundsWork(t *testing.T) {
	t.Parallel()
	before, after := strings.Repeat("a\nsame\n", 16<<10), strings.Repeat("same\nb\n", 16<<10)
	if n := len(diffLines(before, after)); n != 64<<10 {
		t.Errorf("%d lines", n)
	}
}

func TestHunks_LeaveOutFarLines(t *testing.T) {
	t.Parallel()
	before := strings.Repeat("same\n", 20) + "old\n" + strings.Repeat("same\n", 20)
	var shown strings.Builder
	for _, line := range hunks(diffLines(before, strings.Replace(before, "old", "new", 1))) {
		shown.WriteString(line.Op)
	}
	if got := shown.String(); got != "…   -+   …" {
		t.Errorf("shown: %q", got)
	}
}

func TestLineMap_FollowsLines(t *testing.T) {
	t.Parallel()
	whole := "a\nkey: |\n  one\n  two\n  three\nb\n"
	to := lineMap(whole, "a\nkey: mark\nb\n")
	for line, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 2, 6: 3, 99: 3} {
		if got := to(line); got != want {
			t.Errorf("line %d is %d, want %d", line, got, want)
		}
	}
}

func TestKeepRaw_RestoresEscapedText(t *testing.T) {
	t.Parallel()
	shown := "name: Ali\u200bce\r\nnext: x\r\n"
	for sent, want := range map[string]string{
		"name: Ali\\u200bce\nnext: x\n": shown,
		"name: Ali\\u200bce\nnext: y\n": "name: Ali\u200bce\nnext: y\n",
		"name: Alice\nnext: x\n":        "name: Alice\nnext: x\n",
		"":                              "",
	} {
		if got := keepRaw(sent, shown); got != want {
			t.Errorf("%q became %q, want %q", sent, got, want)
		}
	}
	if got := keepRaw("\\u200b", "other"); got != "\\u200b" {
		t.Errorf("what was typed became %q", got)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// reportOf has one row with these figures of ours, against 1 of raw TLS.
func reportOf(g goal, figures ...float64) *report {
	r := &report{}
	for _, f := range figures {
		r.add("x", "s", g, ours, f)
		r.add("x", "s", g, rawTLS, 1)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r    *report
		want string
	}{
		"met":                {reportOf(goal{rawTLS, 1.2, 0}, 1.1, 1.15, 1.1, 1.12, 1.1), "met"},
		"missed":             {reportOf(goal{rawTLS, 1.2, 0}, 1.5, 1.55, 1.5, 1.52, 1.5), "MISSED"},
		"one bad round":      {reportOf(goal{rawTLS, 1.2, 0}, 1.1, 9, 1.1, 1.12, 1.1), "met"},
		"noise":              {reportOf(goal{rawTLS, 1.2, 0}, 0.9, 1.6, 1.25, 1.0, 1.5), "within noise"},
		"at least, met":      {reportOf(goal{rawTLS, 0, 0.9}, 0.95, 0.97), "met"},
		"at least, missed":   {reportOf(goal{rawTLS, 0, 0.9}, 0.5, 0.52, 0.51), "MISSED"},
		"no goal":            {reportOf(goal{over: rawTLS}, 5), ""},
		"nothing to compare": {reportOf(goal{haproxy, 2, 0}, 5), ""},
		"our own figure":     {reportOf(goal{most: 40}, 30, 31), "met"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.r.Rows[0].verdict(); got != c.want {
				score, noise := c.r.Rows[0].score()
				t.Errorf("%q with %.3g ± %.2g, want %q", got, score, noise, c.want)
			}
		})
	}
}

func TestCheckHoldsARunAgainstGoalsAndBaseline(t *testing.T) {
	t.Parallel()
	g := goal{rawTLS, 1.2, 0}
	for name, c := range map[string]struct {
		run, baseline *report
		wrong         string
	}{
		"as before":             {reportOf(g, 1.1, 1.1, 1.1), reportOf(g, 1.09, 1.1, 1.1), ""},
		"a goal missed":         {reportOf(g, 1.5, 1.5, 1.5), nil, "at most 1.2: MISSED"},
		"worse than before":     {reportOf(g, 1.15, 1.15, 1.15), reportOf(g, 0.9, 0.9, 0.9), "0.9 in the baseline"},
		"better than before":    {reportOf(g, 0.5, 0.5, 0.5), reportOf(g, 0.9, 0.9, 0.9), ""},
		"less, where more is":   {reportOf(goal{rawTLS, 0, 0.9}, 1, 1, 1), reportOf(goal{rawTLS, 0, 0.9}, 2, 2, 2), "2 in the baseline"},
		"more, where more is":   {reportOf(goal{rawTLS, 0, 0.9}, 2, 2, 2), reportOf(goal{rawTLS, 0, 0.9}, 1, 1, 1), ""},
		"as noisy as different": {reportOf(g, 0.8, 1.1, 1.4), reportOf(g, 0.9, 0.9, 0.9), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := strings.Join(c.run.check(c.baseline), "\n")
			if c.wrong == "" && wrong != "" || !strings.Contains(wrong, c.wrong) {
				t.Errorf("%q, want %q", wrong, c.wrong)
			}
		})
	}
}

func TestReportsAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	r := reportOf(goal{rawTLS, 1.2, 0}, 1.5, 1.5, 1.5)
	r.Machine = thisMachine()
	path := filepath.Join(t.TempDir(), "report.json")
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	again, err := loadReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var before, after bytes.Buffer
	r.print(&before)
	again.print(&after)
	if before.String() != after.String() || !strings.Contains(after.String(), "1.5 ± 0.03 of tls (at most 1.2: MISSED)") {
		t.Errorf("before:%s\nafter:%s", &before, &after)
	}
	if score, _ := (&row{Over: plain}).score(); !math.IsNaN(score) {
		t.Errorf("a row without figures scores %v", score)
	}
}

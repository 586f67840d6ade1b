// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
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

func TestReport_Verdicts(t *testing.T) {
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

func TestReport_ChecksGoalsAndBaseline(t *testing.T) {
	t.Parallel()
	g := goal{rawTLS, 1.2, 0}
	for name, c := range map[string]struct {
		run, baseline *report
		wrong         string
	}{
		"as before":          {reportOf(g, 1.1, 1.1, 1.1), reportOf(g, 1.09, 1.1, 1.1), ""},
		"a goal missed":      {reportOf(g, 1.5, 1.5, 1.5), nil, "at most 1.2: MISSED"},
		"worse than before":  {reportOf(g, 1.15, 1.15, 1.15), reportOf(g, 0.9, 0.9, 0.9), "0.9 in the baseline"},
		"better than before": {reportOf(g, 0.5, 0.5, 0.5), reportOf(g, 0.9, 0.9, 0.9), ""},
		"less, where more is": {reportOf(goal{rawTLS, 0, 0.9}, 1, 1, 1), reportOf(goal{rawTLS, 0, 0.9}, 2, 2, 2),
			"2 in the baseline"},
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

func TestReport_IgnoresBaselineOfAnotherKind(t *testing.T) {
	t.Parallel()
	here := machine{CPU: "Fast", CPUs: 2, Kernel: "linux 6.1", Load: "0.1"}
	for name, c := range map[string]struct {
		baseline *report
		want     string
	}{
		"none":     {nil, ""},
		"the same": {&report{Quick: true, Machine: machine{CPU: "Fast", CPUs: 2, Kernel: "linux 7", Load: "3"}}, ""},
		"full":     {&report{Machine: here}, "this run is quick, the baseline is full"},
		"another CPU": {&report{Quick: true, Machine: machine{CPU: "Slow", CPUs: 2}},
			`this CPU is "Fast", the baseline's "Slow"`},
		"more CPUs": {&report{Quick: true, Machine: machine{CPU: "Fast", CPUs: 8}},
			"this machine has 2 CPUs, the baseline's 8"},
		"all of it":      {&report{Machine: machine{CPU: "Slow", CPUs: 8}}, "quick|Slow|8"},
		"without a name": {&report{Quick: true, Machine: machine{CPUs: 2}}, `the baseline's ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join((&report{Quick: true, Machine: here}).differences(c.baseline), "; ")
			if c.want == "" && got != "" {
				t.Errorf("%q, want nothing", got)
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
	if got := strings.Join((&report{}).differences(&report{Quick: true}),
		"; "); got != "this run is full, the baseline is quick" {
		t.Errorf("a full run beside a quick baseline: %q", got)
	}
}

func TestReport_SummaryCountsGoals(t *testing.T) {
	t.Parallel()
	r := &report{}
	for name, v := range map[string][]float64{"a": {1, 1, 1}, "b": {1, 1, 1}, "c": {0.9, 1.6, 1.25, 1.0, 1.5},
		"d": {2, 2, 2}, "none": {3}} {
		for _, x := range v {
			g := goal{most: 1.2}
			if name == "none" {
				g = goal{}
			}
			r.add(name, "s", g, ours, x)
		}
	}
	if got, want := r.summary(), "goals: 2 met, 1 within noise, 1 missed"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.add("no other", "s", goal{over: haproxy, most: 1}, ours, 1)
	if got, want := r.summary(),
		"goals: 2 met, 1 within noise, 1 missed, 1 without anything to compare with"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReport_RoundTrip(t *testing.T) {
	t.Parallel()
	r := reportOf(goal{rawTLS, 1.2, 0}, 1.5, 1.5, 1.5)
	r.Machine = thisMachine()
	path := filepath.Join(t.TempDir(), "report.json")
	must.Succeed(t, r.save(path))
	again, err := loadReport(path)
	must.Succeed(t, err)
	var before, after bytes.Buffer
	r.print(&before)
	again.print(&after)
	if before.String() != after.String() ||
		!strings.Contains(after.String(), "1.5 ± 0.03 of tls (at most 1.2: MISSED)") {
		t.Errorf("before:%s\nafter:%s", &before, &after)
	}
	if score, _ := (&row{Over: plain}).score(); !math.IsNaN(score) {
		t.Errorf("a row without figures scores %v", score)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what one run has measured.
type report struct {
	Machine machine  `json:"machine"`
	Quick   bool     `json:"quick,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what the figures do not tell
	Rows    []*row   `json:"rows"`
}

type machine struct {
	Time   time.Time `json:"time"`
	CPU    string    `json:"cpu"`
	CPUs   int       `json:"cpus"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Load   string    `json:"load"` // when the run began
}

// row is one figure of every chain, a value for each round.
type row struct {
	Name   string               `json:"name"`
	Unit   string               `json:"unit"`
	Rounds map[string][]float64 `json:"rounds"`
	// the goal is for the ratio of our chain to this one; "" = for our figure itself
	Over  string  `json:"over,omitempty"`
	Most  float64 `json:"most,omitempty"`
	Least float64 `json:"least,omitempty"`
}

// goal is the value that a row is compared with.
type goal struct {
	over        string
	most, least float64
}

// add notes a value of the next round.
func (r *report) add(name, unit string, g goal, chain string, value float64) {
	i := slices.IndexFunc(r.Rows, func(x *row) bool { return x.Name == name })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, &row{Name: name, Unit: unit, Rounds: map[string][]float64{}, Over: g.over, Most: g.most,
			Least: g.least})
	}
	r.Rows[i].Rounds[chain] = append(r.Rows[i].Rounds[chain], value)
}

// scores returns what a goal is about, for each round: the two figures of a round's ratio were
// taken one right after the other.
func (r *row) scores() []float64 {
	own := r.Rounds[ours]
	if r.Over == "" {
		return own
	}
	other := r.Rounds[r.Over]
	ratios := make([]float64, 0, len(own))
	for i := range min(len(own), len(other)) {
		ratios = append(ratios, own[i]/other[i])
	}
	return ratios
}

// score returns the median of the scores and how far it may be off: the standard error of a median,
// from the rounds' median distance to it.
func (r *row) score() (score, noise float64) {
	scores := r.scores()
	if len(scores) == 0 {
		return math.NaN(), math.NaN()
	}
	score = median(scores)
	distances := make([]float64, len(scores))
	for i, s := range scores {
		distances[i] = math.Abs(s - score)
	}
	const sigma, ofMedian = 1.4826, 1.2533 // a normal distribution's: of the median distance, of the median
	return score, max(2*ofMedian*sigma*median(distances)/math.Sqrt(float64(len(scores))), score/50)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// verdict reports whether the row's goal is met: "" without a goal.
func (r *row) verdict() string {
	score, noise := r.score()
	switch {
	case r.Most == 0 && r.Least == 0, math.IsNaN(score):
		return ""
	case r.Most > 0 && score-noise > r.Most, r.Least > 0 && score+noise < r.Least:
		return "MISSED"
	case r.Most > 0 && score > r.Most, r.Least > 0 && score < r.Least:
		return "within noise"
	default:
		return "met"
	}
}

// print writes the table.
func (r *report) print(w io.Writer) {
	_, _ = fmt.Fprintf(w,
		"\n%s, %d CPUs, %s, %s, load %s; %s\nmedians of the rounds, which go through all chains in turn; CPU is "+
			"that of "+
			"all three relays\n\n",
		r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go, r.Machine.Load,
		r.Machine.Time.Format(time.DateTime))
	all := slices.DeleteFunc([]string{ours, native, rawTLS, plain, haproxy, direct}, func(chain string) bool {
		return !slices.ContainsFunc(r.Rows, func(x *row) bool { return len(x.Rounds[chain]) > 0 })
	})
	names := 0
	for _, x := range r.Rows {
		names = max(names, len(x.Name+", "+x.Unit))
	}
	_, _ = fmt.Fprintf(w, "%-*s", names, "")
	for _, chain := range all {
		_, _ = fmt.Fprintf(w, " %10s", chain)
	}
	_, _ = fmt.Fprintln(w, "   ratio or figure, and goal")
	for _, x := range r.Rows {
		_, _ = fmt.Fprintf(w, "%-*s", names, x.Name+", "+x.Unit)
		for _, chain := range all {
			if v := x.Rounds[chain]; len(v) > 0 {
				_, _ = fmt.Fprintf(w, " %10.4g", median(v))
			} else {
				_, _ = fmt.Fprintf(w, " %10s", "")
			}
		}
		_, _ = fmt.Fprintf(w, "   %s\n", x.goalText())
	}
	for _, note := range r.Notes {
		_, _ = fmt.Fprintln(w, "note:", note)
	}
	_, _ = fmt.Fprintln(w, r.summary())
}

// summary counts the goals.
func (r *report) summary() string {
	count := map[string]int{}
	for _, x := range r.Rows {
		if x.Most > 0 || x.Least > 0 {
			count[x.verdict()]++
		}
	}
	text := fmt.Sprintf("goals: %d met, %d within noise, %d missed", count["met"], count["within noise"],
		count["MISSED"])
	if n := count[""]; n > 0 {
		text += fmt.Sprintf(", %d without anything to compare with", n)
	}
	return text
}

func (r *row) goalText() string {
	score, noise := r.score()
	if math.IsNaN(score) || r.Over == "" && r.verdict() == "" {
		return ""
	}
	text := fmt.Sprintf("%.3g ± %.2g", score, noise)
	if r.Over != "" {
		text += " of " + r.Over
	}
	switch {
	case r.Most > 0:
		text += fmt.Sprintf(" (at most %g: %s)", r.Most, r.verdict())
	case r.Least > 0:
		text += fmt.Sprintf(" (at least %g: %s)", r.Least, r.verdict())
	}
	return text
}

// save writes the report as JSON.
func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func loadReport(path string) (*report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	return r, json.Unmarshal(b, r)
}

// differences returns the reasons why the scores of the two cannot be compared: the load and the
// machine change them, ratios included.
func (r *report) differences(baseline *report) (why []string) {
	if baseline == nil {
		return nil
	}
	kind := map[bool]string{false: "full", true: "quick"}
	if r.Quick != baseline.Quick {
		why = append(why, fmt.Sprintf("this run is %s, the baseline is %s", kind[r.Quick], kind[baseline.Quick]))
	}
	if r.Machine.CPU != baseline.Machine.CPU {
		why = append(why, fmt.Sprintf("this CPU is %q, the baseline's %q", r.Machine.CPU, baseline.Machine.CPU))
	}
	if r.Machine.CPUs != baseline.Machine.CPUs {
		why = append(why, fmt.Sprintf("this machine has %d CPUs, the baseline's %d", r.Machine.CPUs,
			baseline.Machine.CPUs))
	}
	return why
}

// check lists what is wrong: goals that are missed, and scores that are worse than the baseline's,
// by more than the noise of both.
func (r *report) check(baseline *report) []string {
	var wrong []string
	for _, x := range r.Rows {
		if x.verdict() == "MISSED" {
			wrong = append(wrong, x.Name+": "+x.goalText())
		}
		if baseline == nil {
			continue
		}
		i := slices.IndexFunc(baseline.Rows, func(b *row) bool { return b.Name == x.Name })
		if i < 0 || x.Over == "" && x.Most == 0 && x.Least == 0 {
			continue
		}
		score, noise := x.score()
		was, wasNoise := baseline.Rows[i].score()
		worse := score - was
		if x.Least > 0 {
			worse = -worse
		}
		if bound := noise + wasNoise + 0.05*was; worse > bound {
			wrong = append(wrong,
				fmt.Sprintf("%s: %.3g, and %.3g in the baseline; %.2g is more than the noise of both (%.2g)",
					x.Name, score, was, worse, bound))
		}
	}
	return wrong
}

func thisMachine() machine {
	m := machine{Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Kernel: runtime.GOOS,
		Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel += " " + strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(b), " ")
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				m.CPU = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
				break
			}
		}
	}
	return m
}

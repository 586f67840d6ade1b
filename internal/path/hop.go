// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package path owns the hops of a call, from the pod to the upstream: their names, their order,
// which of them depend on which, and what is said about a broken one and done about it.
//
// What comes in: what `fairlead doctor` finds through kubectl, and the dashboard in the account, as
// plain values. Who gets it next: both of them, which show a hop with the same words, and the
// operator, whose conditions have the same sentences. It knows neither Kubernetes nor the store.
package path

import (
	"cmp"
	"fmt"
	"slices"
)

// Status is the result of checking a hop.
type Status string

// The statuses. Warning: it works, but not as it should. Unknown: it could not be determined.
// Skipped: not checked, because an earlier hop is broken. The doctor has no warnings: its hop is OK
// with a remedy.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Broken  Status = "broken"
	Unknown Status = "unknown"
	Skipped Status = "skipped"
)

// Hop is one step of the path of a call, and what was found about it.
type Hop struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is what was found, a sentence or a part of one.
	Detail string `json:"detail"`
	// Fix is the remedy of a broken hop, or the next step for another one. Lines after the first
	// are commands.
	Fix string `json:"fix,omitempty"`
	// Evidence is the objects that were read and what they state.
	Evidence []string `json:"evidence,omitempty"`

	symptom bool // symptom is set when it is broken because of a later hop, which is the one to repair.
	usable  bool // usable is set when it is broken and the hops that need it can be checked all the same.
}

// OKf returns a hop that is in order.
func OKf(format string, args ...any) Hop {
	return Hop{Status: OK, Detail: fmt.Sprintf(format, args...)}
}

// Unknownf returns a hop of which little is known.
func Unknownf(format string, args ...any) Hop {
	return Hop{Status: Unknown, Detail: fmt.Sprintf(format, args...)}
}

// Brokenf returns a broken hop with its remedy.
func Brokenf(fix, format string, args ...any) Hop {
	return Hop{Status: Broken, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

// NotChecked returns the hop of a check that an earlier hop makes useless.
func NotChecked() Hop { return Hop{Status: Skipped, Detail: "not checked"} }

// Named returns the hop with a name.
func (h Hop) Named(name string) Hop {
	h.Name = name
	return h
}

// With returns the hop with more evidence.
func (h Hop) With(evidence ...string) Hop {
	h.Evidence = append(h.Evidence, evidence...)
	return h
}

// AsSymptom returns the hop as one that is broken because of a later hop.
func (h Hop) AsSymptom() Hop {
	h.symptom = true
	return h
}

// AsUsable returns the hop as one that is broken, while the hops that need it can be checked.
func (h Hop) AsUsable() Hop {
	h.usable = true
	return h
}

// Report is the result of all checks.
type Report struct {
	URL     string `json:"url"`
	Context string `json:"context,omitempty"` // the kubectl context
	// OK: no hop is broken. Some may be unknown.
	OK bool `json:"ok"`
	// Broken names the hop to repair first; empty when OK.
	Broken string `json:"broken,omitempty"`
	Hops   []Hop  `json:"hops"`
}

// Add appends hops.
func (r *Report) Add(hops ...Hop) { r.Hops = append(r.Hops, hops...) }

// Hop returns the hop of this name; nil without one.
func (r *Report) Hop(name string) *Hop {
	if i := slices.IndexFunc(r.Hops, func(h Hop) bool { return h.Name == name }); i >= 0 {
		return &r.Hops[i]
	}
	return nil
}

// HasStatus reports whether the hop of a name was checked with a result.
func (r *Report) HasStatus(name string, status Status) bool {
	h := r.Hop(name)
	return h != nil && h.Status == status
}

// Skips reports whether a step is not checked: what it needs is broken, or was skipped.
func (r *Report) Skips(s Step) bool {
	return r.HasStatus(HopCluster, Broken) && !s.ByAccount || s.OnPath && r.anyBroken() ||
		slices.ContainsFunc(s.Needs, func(name string) bool {
			h := r.Hop(name)
			return h != nil && (h.Status == Skipped || h.Status == Broken && !h.usable)
		})
}

func (r *Report) anyBroken() bool {
	return slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Status == Broken })
}

// MarkSymptoms marks the broken hops that another broken hop explains, which have no remedy.
func (r *Report) MarkSymptoms(steps []Step) {
	isBroken := func(name string) bool { return r.HasStatus(name, Broken) }
	for _, s := range steps {
		if isBroken(s.Name) && slices.ContainsFunc(s.Causes, isBroken) {
			h := r.Hop(s.Name)
			h.symptom, h.Fix = true, ""
		}
	}
}

// Conclude fills in OK and Broken from the hops: the first broken one that is no mere symptom of a
// later one.
func (r *Report) Conclude() {
	first := ""
	for _, h := range r.Hops {
		if h.Status != Broken {
			continue
		}
		first = cmp.Or(first, h.Name)
		if !h.symptom {
			r.Broken, r.OK = h.Name, false
			return
		}
	}
	r.Broken, r.OK = first, first == ""
}

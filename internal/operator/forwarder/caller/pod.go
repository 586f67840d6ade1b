// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// maxLabels is how many bytes of labels are kept of a pod; usual are a few hundred.
	maxLabels = 8 << 10
	// labelEnd ends each key and each value of Labels' text: no label has it.
	labelEnd = "\x00"
)

// Pod is a pod as it is known now.
type Pod struct {
	tunnel.PodIdentity

	Labels Labels
}

// Labels are the labels of a pod: one text, which pods with equal labels share. The zero value is
// not known.
type Labels struct {
	text unique.Handle[string] // keys and values in the order of the keys
}

// NewLabels returns the labels of a map. Those of more than maxLabels are not known: a part of them
// could mean something else.
func NewLabels(all map[string]string) Labels {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		text.WriteString(key)
		text.WriteString(labelEnd)
		text.WriteString(all[key])
		text.WriteString(labelEnd)
	}
	if text.Len() > maxLabels {
		return Labels{}
	}
	return Labels{unique.Make(text.String())}
}

// Known reports whether the labels are known.
func (l Labels) Known() bool { return l != Labels{} }

// Lookup returns the value of a label, and whether the pod has it. Labels that are not known have
// none.
func (l Labels) Lookup(key string) (value string, exists bool) {
	if !l.Known() {
		return "", false
	}
	for rest := l.text.Value(); rest != ""; {
		name, after, _ := strings.Cut(rest, labelEnd)
		value, rest, _ = strings.Cut(after, labelEnd)
		if name == key {
			return value, true
		}
	}
	return "", false
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package caller

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Namespaces are the namespaces of the cluster as they are now.
type Namespaces interface {
	// Namespace returns the labels of a namespace and whether it is being deleted.
	Namespace(name string) (labels endpointaccess.Labels, terminating, exists bool)
}

// Snapshot is the rules at one moment, and the labels of namespaces as they are now. Its fields must
// not be modified; its methods are safe for concurrent use.
type Snapshot struct {
	Rules *endpointaccess.Rules
	// Policies are the objects that Rules were compiled from.
	Policies []endpointaccess.Policy
	// Listed has the namespaces that are watched, and whether their objects were listed.
	Listed endpointaccess.Listed
	// Namespaces is nil where no namespace is known.
	Namespaces Namespaces
	// NamespacesListed reports that Namespaces were listed, NamespacesNeeded that the rules are not
	// complete without them.
	NamespacesListed, NamespacesNeeded bool
}

// Knows reports whether the namespace's rules are known.
func (s *Snapshot) Knows(namespace string) bool { return s.Listed.Knows(namespace) }

// KnowsNamespaces reports whether the labels of namespaces were listed, if they are needed.
func (s *Snapshot) KnowsNamespaces() bool { return s.NamespacesListed || !s.NamespacesNeeded }

// Complete reports whether the rules of all watched namespaces, and their labels, are known.
func (s *Snapshot) Complete() bool { return s.Listed.Complete() && s.KnowsNamespaces() }

// NamespaceProblem returns why nothing is projected into a namespace now: NamespaceNotFound or
// NamespaceTerminating of package v1alpha1; empty if it exists. It is not known where namespaces
// cannot be read.
func (s *Snapshot) NamespaceProblem(name string) (reason string, known bool) {
	if !s.NamespacesListed {
		return "", false
	}
	switch _, terminating, exists := s.Namespaces.Namespace(name); {
	case !exists:
		return v1alpha1.ReasonNamespaceNotFound, true
	case terminating:
		return v1alpha1.ReasonNamespaceTerminating, true
	}
	return "", true
}

// NamespaceLabels returns the labels of a namespace, and whether they are known.
func (s *Snapshot) NamespaceLabels(name string) (endpointaccess.Labels, bool) {
	if s.Namespaces == nil {
		return nil, false
	}
	labels, _, exists := s.Namespaces.Namespace(name)
	return labels, exists
}

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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointaccess

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Labels are the labels of a pod or a namespace. labels.Set of k8s.io/apimachinery implements it.
type Labels interface {
	Lookup(key string) (value string, exists bool)
}

// LabelMap implements Labels.
type LabelMap map[string]string

// Lookup implements Labels.
func (m LabelMap) Lookup(key string) (value string, exists bool) {
	value, exists = m[key]
	return value, exists
}

// Selector is a label selector of Kubernetes: all of its requirements must hold; without any it
// selects everything.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []Requirement     `json:"matchExpressions,omitempty"`
}

// Requirement is one element of Selector.MatchExpressions.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"` // one of the operators below
	Values   []string `json:"values,omitempty"`
}

// Operators of a Requirement.
const (
	operatorIn           = "In"
	operatorNotIn        = "NotIn"
	operatorExists       = "Exists"
	operatorDoesNotExist = "DoesNotExist"
)

const (
	maxNameLength   = 63  // bytes of a label's name, and of its value
	maxPrefixLength = 253 // bytes of the part before the slash
)

var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// Validate returns an error unless the API server would take s as a label selector. A nil selector
// is valid.
func (s *Selector) Validate() error {
	if s == nil {
		return nil
	}
	for key, value := range s.MatchLabels {
		if err := (Requirement{key, operatorIn, []string{value}}).validate(); err != nil {
			return fmt.Errorf("matchLabels: %w", err)
		}
	}
	for i, r := range s.MatchExpressions {
		if err := r.validate(); err != nil {
			return fmt.Errorf("matchExpressions[%d]: %w", i, err)
		}
	}
	return nil
}

func (r Requirement) validate() error {
	prefix, name, found := strings.Cut(r.Key, "/")
	if !found {
		prefix, name = "", r.Key
	}
	if len(name) > maxNameLength || !labelName.MatchString(name) ||
		found && (len(prefix) > maxPrefixLength || !labelPrefix.MatchString(prefix)) {
		return fmt.Errorf("key %q is no name of a label: give one as app or example.com/app", r.Key)
	}
	switch r.Operator {
	case operatorIn, operatorNotIn:
		if len(r.Values) == 0 {
			return fmt.Errorf("operator %s of key %q needs values", r.Operator, r.Key)
		}
	case operatorExists, operatorDoesNotExist:
		if len(r.Values) > 0 {
			return fmt.Errorf("operator %s of key %q takes no values; remove them", r.Operator, r.Key)
		}
	default:
		return fmt.Errorf("operator %q is none of In, NotIn, Exists and DoesNotExist", r.Operator)
	}
	for _, v := range r.Values {
		if len(v) > maxNameLength || v != "" && !labelName.MatchString(v) {
			return fmt.Errorf("value %q of key %q is no label's value: "+
				"use at most 63 letters, digits, '-', '_' and '.'", v, r.Key)
		}
	}
	return nil
}

// matches reports whether s, which is valid, selects the labels. A nil selector selects all.
func (s *Selector) matches(l Labels) bool {
	if s == nil {
		return true
	}
	for key, want := range s.MatchLabels {
		if value, exists := l.Lookup(key); !exists || value != want {
			return false
		}
	}
	for i := range s.MatchExpressions {
		if !s.MatchExpressions[i].matches(l) {
			return false
		}
	}
	return true
}

func (r *Requirement) matches(l Labels) bool {
	value, exists := l.Lookup(r.Key)
	switch r.Operator {
	case operatorIn:
		return exists && slices.Contains(r.Values, value)
	case operatorNotIn:
		return !exists || !slices.Contains(r.Values, value)
	case operatorExists:
		return exists
	}
	return !exists
}

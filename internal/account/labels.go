// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ValidateLabels checks the labels of a tunnel or of a tunnel group: 1 to MaxLabels, in characters
// that a rule of an authtoken can hold.
func ValidateLabels(labels map[string]string) error {
	var r rules
	switch n := len(labels); {
	case n == 0:
		r.add("labels", "", "at least one label is required, as in app=api")
	case n > MaxLabels:
		r.add("labels", "", fmt.Sprintf("has %d labels; at most %d are allowed", n, MaxLabels))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value, shown := labels[key], key+"="+labels[key]
		switch {
		case key == "" || value == "":
			r.add("labels", shown, "neither the label nor its value may be empty")
		case len(key) > MaxLabel || len(value) > MaxLabel:
			r.add("labels", shown, fmt.Sprintf("a label and its value have at most %d bytes each", MaxLabel))
		case !labelText(key) || strings.Contains(key, ":") || !labelText(value):
			r.add("labels", shown, ruleLabel)
		}
	}
	return r.err()
}

const ruleLabel = "only printable ASCII without spaces, quotes, '*', ',' and a further '=' is allowed, and no ':' in " +
	"front of the '='"

// labelText reports whether every character may stand in a label or its value.
func labelText(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`*,="'`, c)
	})
}

// HasLabels reports whether has contains every label of wanted.
func HasLabels(has, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// cutLabelRule splits the pattern of a rule about labels. Others are about URLs: in those a ':'
// comes before any '='.
func cutLabelRule(pattern string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(pattern, "=")
	return key, value, ok && !strings.Contains(key, ":")
}

// brokenLabelRule returns what is wrong with the pattern of a rule about labels, or "".
func brokenLabelRule(key, value string) string {
	star := func(s string) string { return strings.ReplaceAll(s, "*", "") }
	switch {
	case key == "" || value == "":
		return "neither the label nor its value may be empty; \"*\" stands for any"
	case !labelText(star(key)) || !labelText(star(value)):
		return "could never match: in labels " + ruleLabel
	}
	return ""
}

// Limits of EndpointSettings.ServiceLabels.
const (
	maxServiceLabels      = 16
	maxServiceLabelsBytes = 2048
)

var (
	labelKeyPattern = regexp.MustCompile(
		`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValuePattern = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// ParseServiceLabels parses EndpointSettings.ServiceLabels: KEY=VALUE of Kubernetes labels, with a
// comma between.
func ParseServiceLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	if text == "" {
		return labels, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(entry, "=")
		_, duplicate := labels[key]
		switch {
		case !found || !labelKeyPattern.MatchString(key) || !labelValuePattern.MatchString(value):
			return nil, fmt.Errorf("%q is no KEY=VALUE of a Kubernetes label; give KEY=VALUE,KEY=VALUE", Shorten(entry))
		case duplicate:
			return nil, fmt.Errorf("%q is given twice", key)
		}
		labels[key] = value
	}
	if len(labels) > maxServiceLabels || len(text) > maxServiceLabelsBytes {
		return nil, fmt.Errorf("at most %d labels, of %d bytes together", maxServiceLabels, maxServiceLabelsBytes)
	}
	return labels, nil
}

// FormatServiceLabels returns the text that ParseServiceLabels parses.
func FormatServiceLabels(labels map[string]string) string {
	entries := make([]string, 0, len(labels))
	for key, value := range labels {
		entries = append(entries, key+"="+value)
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}

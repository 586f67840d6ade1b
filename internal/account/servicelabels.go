// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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

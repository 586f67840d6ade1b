// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// selected are the metrics that an expression names, each with the labels of its matchers.
type selected map[string][]string

var (
	texts     = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	groupings = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	// numbers and durations, names, matchers, and the parenthesis after a function
	token    = regexp.MustCompile(`[0-9][0-9a-z.]*|[a-zA-Z_:][a-zA-Z0-9_:]*|\{[^}]*\}|\(`)
	matcher  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)`)
	keywords = []string{"and", "or", "unless", "bool", "offset"}
)

// metricsOf returns what an expression of PromQL selects.
func metricsOf(expr string) selected {
	found := selected{}
	expr = groupings.ReplaceAllString(ranges.ReplaceAllString(texts.ReplaceAllString(expr, `""`), ""), "")
	tokens := append(token.FindAllString(expr, -1), "")
	for i, name := range tokens[:len(tokens)-1] {
		after := tokens[i+1]
		if strings.ContainsAny(name[:1], "0123456789{(") || after == "(" || slices.Contains(keywords, name) {
			continue
		}
		labels := found[name]
		if strings.HasPrefix(after, "{") {
			for _, l := range matcher.FindAllStringSubmatch(after, -1) {
				labels = append(labels, l[1])
			}
		}
		found[name] = labels
	}
	return found
}

func TestMetricsOf_FindsEverySelector(t *testing.T) {
	t.Parallel()
	got := metricsOf(`(sum by (a, b) (rate(x_total{c=~"5..", d!="y{"}[5m])) or vector(0)) / on (a) group_left (z)
		label_replace(increase(y:ratio{e="sum(w)"}[1h]), "l", "v: $1", "f", "(.*)") > 0.5
		and up unless time() - g < 7 * 86400`)
	want := selected{"x_total": {"c", "d"}, "y:ratio": {"e"}, "up": nil, "g": nil}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// targetLabels are those that Prometheus adds to series of pods; exported_namespace is the label
// namespace of a program.
var targetLabels = []string{"namespace", "job", "pod", "instance", "exported_namespace"}

// alertsLabels are those of Prometheus's own series ALERTS.
var alertsLabels = []string{"alertname", "alertstate", "namespace"}

// scraped are the labels of series by the metric's name, from the text of /metrics.
type scraped map[string]map[string]bool

var (
	sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? `)
	label  = regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`)
)

// add adds the series of a scrape.
func (s scraped) add(text string) {
	for _, line := range sample.FindAllStringSubmatch(text, -1) {
		if s[line[1]] == nil {
			s[line[1]] = map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(line[2], -1) {
			s[line[1]][l[1]] = true
		}
	}
}

// missing returns what the expressions name and the scrapes do not have, sorted. Recorded series
// are those of the rules.
func (s scraped) missing(expressions map[string]string, recorded []string) (missing []string) {
	for at, expr := range expressions {
		for name, labels := range metricsOf(expr) {
			if strings.Contains(name, ":") {
				if !slices.Contains(recorded, name) {
					missing = append(missing, at+": no rule records "+name)
				}
				continue
			}
			known, ok := s[name]
			if !ok && name != "ALERTS" {
				missing = append(missing, at+": no program has "+name)
				continue
			}
			for _, l := range labels {
				if !known[l] && !slices.Contains(targetLabels, l) &&
					(name != "ALERTS" || !slices.Contains(alertsLabels, l)) {
					missing = append(missing, at+": "+name+" has no label "+l)
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

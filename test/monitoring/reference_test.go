// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/reference"
)

const metricsPage = "../../docs/watch/metrics.md"

// family is a metric as /metrics describes it.
type family struct {
	kind, help string
	labels     map[string]bool
}

var (
	comment = regexp.MustCompile(`(?m)^# (HELP|TYPE) (\S+) (.*)$`)
	// ofFamily is what the series of a histogram or summary have behind the family's name.
	ofFamily = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// families returns the metrics of a scrape by name.
func families(text string) map[string]*family {
	found := map[string]*family{}
	for _, line := range comment.FindAllStringSubmatch(text, -1) {
		f := found[line[2]]
		if f == nil {
			f = &family{labels: map[string]bool{}}
			found[line[2]] = f
		}
		if line[1] == "HELP" {
			f.help = line[3]
		} else {
			f.kind = line[3]
		}
	}
	series := scraped{}
	series.add(text)
	for name, labels := range series {
		f := found[name]
		if f == nil {
			f = found[ofFamily.ReplaceAllString(name, "")]
		}
		maps.Copy(f.labels, labels)
		delete(f.labels, "le")
	}
	return found
}

var described = regexp.MustCompile("(?m)^\\| `(fairlead_\\w+)`")

// undescribed returns the metrics of docs/watch/metrics.md that a scrape does not have yet.
func undescribed(t *testing.T, text string) (missing []string) {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	must.Succeed(t, err)
	all := families(text)
	for _, row := range described.FindAllStringSubmatch(string(page), -1) {
		if all[row[1]] == nil {
			missing = append(missing, metricsPage+": no program has "+row[1])
		}
	}
	return missing
}

// describeMetrics compares the tables of the page with what the programs serve.
func describeMetrics(t *testing.T, text string) {
	t.Helper()
	all := families(text)
	for _, program := range []string{"server", "operator", "forwarder", "exporter"} {
		table := reference.Header("Metric", "Type", "Labels", "What")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if f := all[name]; strings.HasPrefix(name, "fairlead_"+program+"_") {
				labels := slices.Sorted(maps.Keys(f.labels))
				for i, label := range labels {
					labels[i] = reference.Code(label)
				}
				table += reference.Row(reference.Code(name), f.kind, strings.Join(labels, ", "), f.help)
			}
		}
		reference.Block(t, metricsPage, program, table)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const root = "../.."

// parse is Prometheus's parser without experimental features.
var parse = parser.NewParser(parser.Options{})

// expressions returns the expressions of all rules and panels, with where each stands.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range list(t, "docs/prometheus/*.rules.yaml") {
		groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parse,
			slog.New(slog.DiscardHandler))
		for _, err := range errs {
			t.Error(err)
		}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				all[filepath.Base(file)+" "+rule.Record+rule.Alert] = rule.Expr
			}
		}
	}
	values := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*", "$endpoint", ".*")
	for _, file := range list(t, "docs/grafana/*.json") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(file)+" "+p.Title+" "+target.RefID] = values.Replace(target.Expr)
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("found only %d expressions", len(all))
	}
	return all
}

func list(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	return files
}

func TestExpressions_Parse(t *testing.T) {
	t.Parallel()
	for at, expr := range expressions(t) {
		if _, err := parse.ParseExpr(expr); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	if _, err := parse.ParseExpr("sum by (x) (rate(up[5m])"); err == nil {
		t.Error("an expression that lacks a parenthesis is parsed, so this test proves nothing")
	}
}

// counterSuffixes are those of the series that only grow.
var counterSuffixes = []string{"_total", "_count", "_sum", "_bucket"}

// misused returns the mistakes in the use of counters and gauges: rates of what is no counter, and
// counters without a rate.
func misused(t *testing.T, expr string) (mistakes []string) {
	t.Helper()
	parsed, err := parse.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		counter, rated := false, false
		for _, suffix := range counterSuffixes {
			counter = counter || strings.HasSuffix(selector.Name, suffix)
		}
		for _, parent := range path {
			call, ok := parent.(*parser.Call)
			rated = rated || ok && (call.Func.Name == "rate" || call.Func.Name == "increase")
		}
		if counter != rated {
			mistakes = append(mistakes, selector.Name)
		}
		return nil
	})
	return mistakes
}

func TestExpressions_RateCountersOnly(t *testing.T) {
	t.Parallel()
	for at, expr := range expressions(t) {
		for _, name := range misused(t, expr) {
			t.Errorf("%s: %s is a counter without a rate, or a rate of what is no counter", at, name)
		}
	}
	for _, wrong := range []string{"sum(x_total)", "rate(x_open[5m])"} {
		if len(misused(t, wrong)) != 1 {
			t.Errorf("%s is taken, so this test proves nothing", wrong)
		}
	}
}

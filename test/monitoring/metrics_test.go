// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// databases is the PostgreSQL server of the replicas.
var databases postgrestest.Shared

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(postgrestest.Main{M: m, Shared: &databases}.Run())
}

// TestMetrics_AreThoseOfRunningPrograms runs two replicas of the service, a manager, a forwarder
// and an exporter, has traffic of every kind pass them, and looks for the metrics in what they
// serve.
func TestMetrics_AreThoseOfRunningPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.callEverything()
	var recorded []string
	each(t, func(_ string, r rule) {
		if r.Record != "" {
			recorded = append(recorded, r.Record)
		}
	})
	all := expressions(t)
	var missing []string
	found, text := scraped{}, ""
	t.Cleanup(func() {
		for _, m := range missing {
			t.Error(m)
		}
	})
	wait.Until(t, "every metric of rules and dashboards", func() bool {
		text = w.scrape()
		found = scraped{}
		found.add(text)
		missing = append(found.missing(all, recorded), undescribed(t, text)...)
		return len(missing) == 0
	})
	wrong := map[string]string{"x": `rate(fairlead_server_requests_total{status="200"}[5m])`, "y": "fairlead_no_such"}
	if got := found.missing(wrong, nil); !slices.Equal(got, []string{
		"x: fairlead_server_requests_total has no label status", "y: no program has fairlead_no_such"}) {
		t.Errorf("a wrong label and a wrong name give %q, so this test proves nothing", got)
	}
	describeMetrics(t, text)
}

// scrape returns what all programs serve.
func (w *world) scrape() string {
	w.Helper()
	var all strings.Builder
	for _, address := range w.metrics {
		req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", address),
			nil)
		must.Succeed(w, err)
		text, err := get(req)
		if err != nil {
			w.Fatalf("scraping %s: %v", address, err)
		}
		all.WriteString(text)
	}
	return all.String()
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// exportCount returns how many Services a test exports: FAIRLEAD_EXPORTS, or its own number.
func exportCount(t *testing.T, otherwise int) int {
	t.Helper()
	text := os.Getenv("FAIRLEAD_EXPORTS")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FAIRLEAD_EXPORTS: %v", err)
	}
	return n
}

// heap returns the bytes of live objects of the test's process: exporter, service and clients.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// expectRows waits until the account has n records and n ports that are online, for at most five
// minutes.
func (w *world) expectRows(what string, n int) {
	w.Helper()
	began := time.Now()
	for {
		records, ports := 0, 0
		for before := ""; ; {
			page, err := w.tenant.Store.ListEndpoints(w.Context(), w.tenant.Account,
				account.EndpointFilter{Bindings: []string{account.BindingClusterset}},
				account.Page{Limit: account.MaxPageLimit, BeforeID: before})
			if err != nil {
				w.Fatal(err)
			}
			for _, e := range page.Endpoints {
				if before = e.ID; e.Type == account.TypeCloud {
					records++
				} else if e.Status == account.StatusOnline {
					ports++
				}
			}
			if len(page.Endpoints) < account.MaxPageLimit {
				break
			}
		}
		if records == n && ports == n {
			w.Logf("%s: %d exports after %v", what, n, time.Since(began).Round(10*time.Millisecond))
			return
		}
		if time.Since(began) > 5*time.Minute {
			w.Fatalf("%s: %d records and %d ports after %v, want %d", what, records, ports, time.Since(began), n)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestExporter_ManyExports exports many Services at once, restarts the exporter and deletes all.
func TestExporter_ManyExports(t *testing.T) {
	w := newWorld(t)
	n := exportCount(t, 40)
	config := testenv.Start(t, testenv.WithServiceRange("10.64.0.0/16"), testenv.WithMultiClusterKinds())
	w.kube = testenv.NewKube(t, config)
	w.kube.MustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	for i := range n {
		w.kube.CreateService(w.namespace, fmt.Sprintf("s-%04d", i), "none", 80)
	}
	d := w.deployment()
	start := func() *replica {
		return w.start(d, exporting, func(o *exporter.Options) { o.Kubernetes = config }).ready()
	}
	r := start()
	before := heap()
	began := time.Now()
	for i := range n {
		w.serviceExport(fmt.Sprintf("s-%04d", i))
	}
	w.Logf("created within %v", time.Since(began).Round(10*time.Millisecond))
	w.expectRows("exported", n)
	w.Logf("%d KiB of heap for each export, in exporter, service and clients", (heap()-before)/int64(n)>>10)
	last := &v1beta1.ServiceExport{}
	last.Namespace, last.Name = w.namespace, fmt.Sprintf("s-%04d", n-1)
	w.expectExport(last, "Ready=True Exported", "")
	version := last.ResourceVersion
	r.stop()
	began = time.Now()
	r = start()
	w.Logf("ready %v after a restart", time.Since(began).Round(10*time.Millisecond))
	w.expectRows("restarted", n)
	wait.Until(t, "the Lease", func() bool { return r.metric("fairlead_exporter_leading") == 1 })
	if w.exportConditions(last); last.ResourceVersion != version {
		t.Error("the restart wrote a status")
	}
	if err := w.kube.DeleteAllOf(t.Context(), &v1beta1.ServiceExport{}, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	w.expectRows("deleted", 0)
}

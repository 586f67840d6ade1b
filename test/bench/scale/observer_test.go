// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// observer records the objects of the cluster, by watches on their metadata. It is safe for
// concurrent use.
type observer struct {
	b       *testing.B
	mu      sync.Mutex
	seen    map[string]map[string]time.Time // kind -> namespace/name -> when it appeared
	made    map[string]int                  // kind -> how many appeared, including deleted ones
	changed chan struct{}                   // closed and replaced at each change
}

// observe watches Services, BoundEndpoints and EndpointSlices of the two namespaces.
func observe(b *testing.B, w *controlPlane) *observer {
	b.Helper()
	o := &observer{b: b, seen: map[string]map[string]time.Time{}, made: map[string]int{}, changed: make(chan struct{})}
	c, err := cache.New(w.env.Config, cache.Options{Scheme: w.kube.Scheme(), Mapper: w.kube.RESTMapper(),
		DefaultNamespaces: map[string]cache.Config{operatorNamespace: {}, targetNamespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields()})
	must.Succeed(b, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan struct{})
	b.Cleanup(func() { cancel(); <-ended })
	for _, gvk := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Service"),
		v1alpha1.GroupVersion.WithKind("BoundEndpoint"),
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		must.Succeed(b, err)
		o.seen[gvk.Kind] = map[string]time.Time{}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(x any) { o.note(gvk.Kind, x, true) },
			DeleteFunc: func(x any) { o.note(gvk.Kind, x, false) },
		})
		must.Succeed(b, err)
	}
	go func() {
		defer close(ended)
		_ = c.Start(ctx)
	}()
	if !c.WaitForCacheSync(ctx) {
		b.Fatal("the observer's caches are not filled")
	}
	return o
}

func (o *observer) note(kind string, x any, there bool) {
	if gone, ok := x.(toolscache.DeletedFinalStateUnknown); ok {
		x = gone.Obj
	}
	meta := x.(*metav1.PartialObjectMetadata)
	o.mu.Lock()
	defer o.mu.Unlock()
	key := meta.Namespace + "/" + meta.Name
	if there {
		o.seen[kind][key] = time.Now()
		o.made[kind]++
	} else {
		delete(o.seen[kind], key)
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *observer) count(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen[kind])
}

// when returns when the object appeared; zero means that it has not.
func (o *observer) when(kind, key string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[kind][key]
}

// reached waits until n objects of the kind have appeared, and returns when that was; the zero time
// when the benchmark ends before.
func (o *observer) reached(kind string, n int) time.Time {
	for {
		o.mu.Lock()
		changed, count := o.changed, o.made[kind]
		o.mu.Unlock()
		if count >= n {
			return time.Now()
		}
		select {
		case <-changed:
		case <-o.b.Context().Done():
			return time.Time{}
		}
	}
}

// wait waits until the condition holds.
func (o *observer) wait(what string, patience time.Duration, condition func() bool) {
	o.b.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			o.b.Fatalf("%s: not after %s; there are %d Services, %d BoundEndpoints, %d EndpointSlices", what, patience,
				o.count("Service"), o.count("BoundEndpoint"), o.count("EndpointSlice"))
		}
	}
}

// clientFor makes an HTTP client with an administrator's credentials.
func clientFor(config *rest.Config) (*http.Client, error) { return rest.HTTPClientFor(config) }

// buildOperator compiles the program that is measured.
func buildOperator(b *testing.B) string {
	b.Helper()
	root, err := filepath.Abs("../../..")
	must.Succeed(b, err)
	program := filepath.Join(b.TempDir(), "fairlead-operator")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/fairlead-operator")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the operator: %v\n%s", err, out)
	}
	return program
}

// resultTable is the table that a run prints.
type resultTable struct{ rows [][]string }

func (f *resultTable) add(what, figure, goal string) {
	f.rows = append(f.rows, []string{what, figure, goal})
}

func (f *resultTable) print(b *testing.B) {
	var text strings.Builder
	for _, row := range f.rows {
		fmt.Fprintf(&text, "%-72s %-34s %s\n", row[0], row[1], row[2])
	}
	b.Log("\n" + text.String())
}

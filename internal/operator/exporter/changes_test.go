// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

type v1Slice = discoveryv1.EndpointSlice

// callAll calls the URL one time after another until the returned function is called, which returns
// the answers other than want.
func (w *world) callAll(url string, want ...string) (stop func() []string) {
	w.Helper()
	done, ended := make(chan struct{}), make(chan []string, 1)
	go func() {
		var wrong []string
		for {
			select {
			case <-done:
				ended <- wrong
				return
			default:
			}
			if got := w.call(url); !slices.Contains(want, got) {
				wrong = append(wrong, got)
			}
		}
	}()
	return sync.OnceValue(func() []string { close(done); return <-ended })
}

func TestExporter_ChangesLoseNoRequest(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "old", "old")
	w.serviceOf(w.namespace, "new", "new")
	w.start(w.deployment())
	o := w.export("api", "old")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	id := o.Status.ID
	stop := w.callAll(o.Spec.URL, "200 old", "200 new")
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Upstream.URL = "http://new" })
	w.expectReady(o, "True Ready")
	w.expectAnswer(o.Spec.URL, "200 new")
	update(w, o, func(o *v1alpha1.AgentEndpoint) {
		o.Spec.Description = "second"
		o.Spec.TrafficPolicy = inline(
			`{"on_http_response":[{"actions":[{"type":"add-headers","config":{"headers":{"x":"y"}}}]}]}`)
	})
	w.expectReady(o, "True Ready")
	if wrong := stop(); len(wrong) > 0 {
		t.Errorf("%d requests failed: %v", len(wrong), wrong)
	}
	update(w, o, func(o *v1alpha1.AgentEndpoint) {
		o.Spec.TrafficPolicy = inline(
			`{"on_http_request":[{"actions":[{"type":"custom-response","config":{"status_code":418,"body":"tea"}}]}]}`)
	})
	w.expectAnswer(o.Spec.URL, "418 tea")
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.TrafficPolicy = inline(`{"on_http_request":"dance"}`) })
	w.expectReady(o, "False PolicyInvalid")
	later := w.export("later", "new")
	w.kube.MustCreate(later)
	w.expectReady(later, "True Ready") // the agent has had all endpoints once more
	if got := w.call(o.Spec.URL); got != "418 tea" {
		t.Errorf("a wrong policy has replaced one that protects: %s", got)
	}
	row := w.rows(o.Spec.URL)
	if len(row) != 1 || row[0].ID != id || row[0].Description != "second" {
		t.Errorf("rows %+v, want %s", row, id)
	}
}

func TestExporter_TwoReplicasShareObjects(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	d := w.deployment()
	first := w.start(d).ready()
	o := w.export("api", "api")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	id := o.Status.ID
	var written atomic.Int32 // by the second
	w.start(d, func(o *exporter.Options) {
		o.Kubernetes = rest.CopyConfig(o.Kubernetes)
		o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "/status") {
					written.Add(1)
				}
				return next.RoundTrip(req)
			})
		})
	}).ready()
	other := w.export("other", "api")
	w.kube.MustCreate(other)
	w.expectReady(other, "True Ready")
	wait.Until(t, "the second's endpoint", func() bool { return len(w.rows(other.Spec.URL)) == 2 })
	if written.Load() > 0 {
		t.Error("a replica without the Lease wrote a status")
	}
	if rows := w.rows(o.Spec.URL); len(rows) != 2 {
		t.Fatalf("two replicas have %d endpoints", len(rows))
	}
	version := o.ResourceVersion
	stop := w.callAll(o.Spec.URL, "200 hello")
	first.stop()
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Description = "by the second" })
	wait.Until(t, "a status by the other replica", func() bool {
		return w.conditions(o)[v1alpha1.ConditionReady] == "True Ready"
	})
	if wrong := stop(); len(wrong) > 0 {
		t.Errorf("%d requests failed: %v", len(wrong), wrong)
	}
	if written.Load() == 0 {
		t.Error("the second replica wrote nothing")
	}
	if o.Status.ID != id || o.ResourceVersion == version {
		t.Errorf("status %+v, want id %s", o.Status, id)
	}
}

func TestExporter_NamespaceDeletionEndsEndpoints(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	w.start(w.deployment())
	var all []*v1alpha1.AgentEndpoint
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, w.export(name, "api"))
		w.kube.MustCreate(all[len(all)-1])
	}
	for _, o := range all {
		w.expectReady(o, "True Ready")
	}
	w.kube.MustDelete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	for _, o := range all {
		wait.Until(t, "the end of "+o.Name, func() bool { return len(w.rows(o.Spec.URL)) == 0 })
	}
}

func TestExporter_RestartKeepsEndpoints(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	d := w.deployment()
	r := w.start(d)
	o := w.export("api", "api")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	id, version := o.Status.ID, o.ResourceVersion
	r.stop()
	wait.Until(t, "an endpoint that is offline", func() bool {
		rows := w.rows(o.Spec.URL)
		return len(rows) == 1 && rows[0].ID == id && rows[0].Status == account.StatusOffline
	})
	again := w.start(d).ready()
	w.expectAnswer(o.Spec.URL, "200 hello")
	if rows := w.rows(o.Spec.URL); len(rows) != 1 || rows[0].ID != id {
		t.Errorf("after the restart: %+v", rows)
	}
	wait.Until(t, "the Lease", func() bool { return again.metric("fairlead_exporter_leading") == 1 })
	if w.conditions(o); o.ResourceVersion != version {
		t.Errorf("the restart changed the object: %+v", o.Status)
	}
	w.kube.MustDelete(d)
	again.stop()
	if rows := w.rows(o.Spec.URL); len(rows) != 0 {
		t.Errorf("after the Deployment's end: %+v", rows)
	}
}

func TestExporter_RecreatedObjectKeepsEndpoint(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	d := w.deployment()
	r := w.start(d)
	o := w.export("api", "api")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	id := o.Status.ID
	r.stop() // or it would unbind the endpoint between
	w.kube.MustDelete(o)
	o = w.export("api", "api")
	w.kube.MustCreate(o)
	w.start(d)
	w.expectReady(o, "True Ready")
	if rows := w.rows(o.Spec.URL); len(rows) != 1 || rows[0].ID != id || rows[0].Owner.UID != string(o.UID) {
		t.Errorf("rows %+v, want %s of %s", rows, id, o.UID)
	}
}

// breaker cuts clients off from the API server while it is open.
type breaker struct {
	mu      sync.Mutex
	isOpen  bool
	cancels []context.CancelFunc // of the requests so far, watches included
}

func (b *breaker) open(isOpen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOpen = isOpen
	for _, cancel := range b.cancels {
		cancel()
	}
	b.cancels = nil
}

func (b *breaker) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(req.Context())
		b.mu.Lock()
		isOpen := b.isOpen
		b.cancels = append(b.cancels, cancel)
		b.mu.Unlock()
		if isOpen {
			return nil, errAway
		}
		return next.RoundTrip(req.WithContext(ctx))
	})
}

var errAway = errors.New("the API server is away")

// TestExporter_SurvivesAPIServer cuts the exporter off from the API server.
func TestExporter_SurvivesAPIServer(t *testing.T) {
	w := newWorld(t)
	slice := w.serviceOf(w.namespace, "api", "hello")
	away := &breaker{}
	r := w.start(w.deployment(), func(o *exporter.Options) {
		o.Kubernetes = rest.CopyConfig(o.Kubernetes)
		o.Kubernetes.Wrap(away.wrap)
	})
	o, gone := w.export("api", "api"), w.export("gone", "api")
	w.kube.MustCreate(o, gone)
	w.expectReady(o, "True Ready")
	w.expectReady(gone, "True Ready")
	stop := w.callAll(o.Spec.URL, "200 hello")
	away.open(true)
	w.kube.MustDelete(gone)
	wait.Until(t, "the Lease's loss", func() bool { return r.metric("fairlead_exporter_leading") == 0 })
	if rows := w.rows(gone.Spec.URL); len(rows) != 1 || r.readyz() != http.StatusOK {
		t.Errorf("without the API server: %+v, ready %d", rows, r.readyz())
	}
	if wrong := stop(); len(wrong) > 0 {
		t.Errorf("%d requests failed: %v", len(wrong), wrong)
	}
	update(w, slice, func(s *v1Slice) { s.Endpoints = []discoveryv1.Endpoint{w.pod("moved")} })
	away.open(false)
	wait.Until(t, "the end of what was deleted", func() bool { return len(w.rows(gone.Spec.URL)) == 0 })
	w.expectAnswer(o.Spec.URL, "200 moved")
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Description = "later" })
	w.expectReady(o, "True Ready")
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// createReady creates AgentEndpoints with these names for Service api, and returns them, and how long
// they took to be ready, once there are events of them.
func (w *world) createReady(names string) (all []*v1alpha1.AgentEndpoint, took time.Duration) {
	w.Helper()
	began := time.Now()
	for name := range strings.FieldsSeq(names) {
		all = append(all, w.export(name, "api"))
		w.kube.MustCreate(all[len(all)-1])
	}
	for _, o := range all {
		w.expectReady(o, "True Ready")
	}
	took = time.Since(began)
	for _, o := range all {
		wait.Until(w.T, "an event", func() bool { return len(w.eventReasons(o)) > 0 })
	}
	return all, took
}

// TestExporter_WritesOnce counts what an exporter writes: a status and an event for each object,
// and nothing for what changes no condition.
func TestExporter_WritesOnce(t *testing.T) {
	w := newWorld(t)
	slice := w.serviceOf(w.namespace, "api", "hello")
	written := &writeCounter{writes: map[string]int{}}
	w.start(w.deployment(), written.count(w)).ready()
	var all []*v1alpha1.AgentEndpoint
	// a bind that takes longer than 2 s is reported, in a second write: this machine may be slow
	for attempt, took := 0, time.Hour; took > 2*time.Second && attempt < 5; attempt++ {
		written.reset()
		all, took = w.createReady(fmt.Sprintf("a-%d b-%d c-%d d-%d", attempt, attempt, attempt, attempt))
	}
	for _, text := range []string{"second", "third"} { // no news for a status
		update(w, slice, func(s *v1Slice) { s.Endpoints = []discoveryv1.Endpoint{w.pod(text)} })
		w.expectAnswer(all[0].Spec.URL, "200 "+text)
	}
	want := map[string]int{"POST /events": len(all)}
	for _, o := range all {
		want["PUT /agentendpoints/"+o.Name+"/status"] = 1
	}
	written.require(t, want)
}

// writeCounter counts what exporters write, and what is refused as their cache was older.
type writeCounter struct {
	mu        sync.Mutex
	writes    map[string]int
	conflicts int
}

// count returns an option that counts an exporter's writes in the world's namespace.
func (c *writeCounter) count(w *world) func(*exporter.Options) {
	return func(o *exporter.Options) {
		o.Kubernetes = rest.CopyConfig(o.Kubernetes)
		o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				res, err := next.RoundTrip(req)
				if err != nil || req.Method == http.MethodGet || strings.Contains(req.URL.Path, "/leases") {
					return res, err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if res.StatusCode == http.StatusConflict { // the cache was older than the status
					c.conflicts++
				} else {
					_, path, _ := strings.Cut(req.URL.Path, w.namespace)
					c.writes[req.Method+" "+path]++
				}
				return res, nil
			})
		})
	}
}

func (c *writeCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.writes)
	c.conflicts = 0
}

// require requires these writes, once there are as many events, and a conflict for each status at most.
func (c *writeCounter) require(t *testing.T, want map[string]int) {
	t.Helper()
	const events = "POST /events"
	wait.Until(t, "the events", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.writes[events] >= want[events]
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.writes, want) || c.conflicts >= len(want) {
		t.Errorf("writes %v and %d refused ones, want %v", c.writes, c.conflicts, want)
	}
}

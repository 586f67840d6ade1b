// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	bareObjects  = 4 // as many workers as the manager has for BoundEndpoints
	bareServices = 8 // and for Services
	oneMore      = 200
	churnFor     = time.Minute
	churnRate    = 20 // changes a second
	restFor      = time.Minute
)

// BenchmarkScale measures the manager with each number of endpoints.
func BenchmarkScale(b *testing.B) {
	program := buildOperator(b)
	sizes := []int{1, 1000, 10_000}
	if text := os.Getenv("FAIRLEAD_BENCH_ENDPOINTS"); text != "" {
		sizes = nil
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(part)
			must.Succeed(b, err)
			sizes = append(sizes, n)
		}
	}
	for i, n := range sizes {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			f := &resultTable{}
			defer f.print(b)
			run := &scaleRun{b: b, f: f, n: n, program: program}
			run.measureConvergence()
			if i == len(sizes)-1 {
				run.measureLarge()
			}
			f.add("start of the manager to the last EndpointSlice (Kubernetes's own)", round(<-run.slices), "")
		})
	}
}

// scaleRun measures one number of endpoints.
type scaleRun struct {
	b       *testing.B
	f       *resultTable
	n       int
	program string

	world    *controlPlane
	service  *service
	observer *observer
	manager  *process
	slices   <-chan time.Duration // how long Kubernetes took to the last EndpointSlice, once it has
}

// measureConvergence measures the way from a started manager to all Services, beside a bare
// client's.
func (r *scaleRun) measureConvergence() {
	bare := r.measureBareClient()
	r.world, r.service = newControlPlane(r.b), newService(r.b)
	r.observer = observe(r.b, r.world)
	for i := range r.n {
		r.service.bind(url(i))
	}
	before, started := r.world.written(), time.Now()
	r.manager = startManager(r.b, r.world, r.service, r.program)
	patience := time.Minute + 10*bare
	all := 2 * r.n
	r.observer.wait("all Services", patience, func() bool { return r.observer.count("Service") >= all })
	took := time.Since(started)
	ratio := float64(took) / float64(bare)
	goal := ""
	if r.n > 1 { // with one endpoint it is the start of the process
		goal = "<= 1.5"
		r.atMost("all Services over a bare client's time", ratio, 1.5)
	}
	r.f.add(fmt.Sprintf("%d endpoints: start of the manager to all Services", r.n), round(took), "")
	r.f.add(fmt.Sprintf("%d endpoints: the same creates by a bare client", r.n), round(bare), "")
	r.f.add("ratio", fmt.Sprintf("%.2f", ratio), goal)
	slices := make(chan time.Duration, 1)
	go func() { slices <- r.observer.reached("EndpointSlice", r.n).Sub(started) }()
	r.slices = slices
	r.awaitQuiet()
	total, which := difference(before, r.world.written())
	if total < 3*r.n {
		r.b.Fatalf("only %d writes were counted for %d endpoints: the count is wrong", total, r.n)
	}
	// once, whatever the number
	installation := min(which["POST events"],
		10) + which["PATCH clusterroles"] + which["POST kubernetesoperators"] + which["PUT kubernetesoperators/status"]
	each := float64(total-installation) / float64(r.n)
	if r.n > 1 {
		r.atMost("writes an endpoint", each, 4)
	}
	r.f.add("writes an endpoint, until nothing is written", fmt.Sprintf("%.2f %v", each, which), "<= 4")
}

// awaitQuiet waits until the API server has seen no write for 15 s, which is longer than every
// debounce.
func (r *scaleRun) awaitQuiet() {
	last, since := r.world.written(), time.Now()
	for deadline := time.Now().Add(15 * time.Minute); time.Since(since) < 15*time.Second; <-time.After(time.Second) {
		now := r.world.written()
		if n, _ := difference(last, now); n > 0 {
			last, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			r.b.Fatal("the manager goes on writing")
		}
	}
}

// measureLarge measures what only matters with many.
func (r *scaleRun) measureLarge() {
	before := r.world.written()
	<-time.After(restFor)
	now, peak := r.manager.memory()
	total, which := difference(before, r.world.written())
	r.atMost("writes at rest", float64(total), 0)
	r.atMost("memory", now, 200)
	r.f.add(fmt.Sprintf("writes in %s at rest, besides the Lease", restFor), fmt.Sprintf("%d %v", total, which), "0")
	r.f.add("memory (RSS) 60 s after convergence; peak", fmt.Sprintf("%.0f MiB; %.0f MiB", now, peak), "<= 200 MiB")
	r.measureOneMore()
	r.measureChurn()
}

// measureOneMore measures one more endpoint, again and again.
func (r *scaleRun) measureOneMore() {
	var times []time.Duration
	for i := range oneMore {
		raw := url(r.n + i)
		began := time.Now()
		id := r.service.bind(raw)
		upstream, target := operatorNamespace+"/"+id, strings.TrimPrefix(strings.Split(raw, ".")[0], "http://")
		target = targetNamespace + "/" + target
		r.observer.wait("one more", 30*time.Second, func() bool {
			return !r.observer.when("Service", upstream).IsZero() && !r.observer.when("Service", target).IsZero()
		})
		last := r.observer.when("Service", target)
		if up := r.observer.when("Service", upstream); up.After(last) {
			last = up
		}
		times = append(times, last.Sub(began))
	}
	slices.Sort(times)
	worst := times[len(times)-1]
	r.atMost("one more endpoint, ms", float64(worst.Milliseconds()), 250)
	r.f.add(fmt.Sprintf("one more endpoint, bind to both Services: median; p99; max of %d", oneMore),
		fmt.Sprintf("%s; %s; %s", round(times[len(times)/2]), round(times[len(times)*99/100]), round(worst)),
		"<= 250ms")
}

// measureChurn binds and unbinds for a while and waits for what is left.
func (r *scaleRun) measureChurn() {
	r.awaitQuiet()
	before, deepest, began := r.world.written(), 0, time.Now()
	tick := time.NewTicker(time.Second / churnRate)
	defer tick.Stop()
	changes := 0
	for ; time.Since(began) < churnFor; <-tick.C {
		raw := url(rand.IntN(max(r.n, 100)))
		if _, there := r.service.hold[raw]; there {
			r.service.unbind(raw)
		} else {
			r.service.bind(raw)
		}
		if changes++; changes%churnRate == 0 {
			deepest = max(deepest, r.manager.queued())
		}
	}
	left, ended := r.manager.queued(), time.Now()
	written, _ := difference(before, r.world.written())
	rate := float64(written) / ended.Sub(began).Seconds()
	all := 2 * len(r.service.hold)
	r.observer.wait("no more and no fewer Services than endpoints", 10*time.Minute, func() bool {
		return r.observer.count("Service") == all
	})
	took := time.Since(ended)
	r.f.add(fmt.Sprintf("%d changes in %s: deepest queue; left at the end; writes a second", changes, churnFor),
		fmt.Sprintf("%d; %d; %.0f", deepest, left, rate), "bounded")
	r.f.add("then until every Service has its endpoint and no other is left (removal after 1 s)", round(took), "")
	r.compareServices()
}

// compareServices compares every Service with the endpoints.
func (r *scaleRun) compareServices() {
	var wrong []string
	for raw, id := range r.service.hold {
		name := strings.TrimPrefix(strings.Split(raw, ".")[0], "http://")
		for _, key := range []string{operatorNamespace + "/" + id, targetNamespace + "/" + name} {
			if r.observer.when("Service", key).IsZero() {
				wrong = append(wrong, "missing: "+key)
			}
		}
	}
	if len(wrong) > 0 || r.observer.count("Service") != 2*len(r.service.hold) {
		r.b.Errorf("after the churn %d Services for %d endpoints; %v", r.observer.count("Service"), len(r.service.hold),
			wrong)
	}
}

func (r *scaleRun) atMost(what string, figure, most float64) {
	if figure > most {
		r.b.Errorf("%s: %.2f, and the goal is %.2f", what, figure, most)
	}
}

// measureBareClient makes the objects that the manager would make, with as many workers and no
// thought, and returns how long that took.
func (r *scaleRun) measureBareClient() time.Duration {
	w := newControlPlane(r.b)
	began := time.Now()
	group, ctx := errgroup.WithContext(r.b.Context())
	numbers, made := make(chan int), make(chan int, r.n)
	group.Go(func() error {
		defer close(numbers)
		for i := range r.n {
			select {
			case numbers <- i:
			case <-ctx.Done():
			}
		}
		return nil
	})
	objects, objectsCtx := errgroup.WithContext(ctx)
	for range bareObjects {
		objects.Go(func() error {
			for i := range numbers {
				if err := w.kube.Create(objectsCtx, boundEndpoint(i)); err != nil {
					return err
				}
				made <- i
			}
			return nil
		})
	}
	group.Go(func() error { defer close(made); return objects.Wait() })
	for range bareServices {
		group.Go(func() error { return createServices(ctx, w, made) })
	}
	must.Succeed(r.b, group.Wait())
	return time.Since(began)
}

func createServices(ctx context.Context, w *controlPlane, made <-chan int) error {
	for i := range made {
		b := boundEndpoint(i)
		ports := []corev1.ServicePort{{Name: "http-80", Port: 80, AppProtocol: ptr.To("http")}}
		upstream := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace,
			Name: b.Spec.ProjectionID},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app.kubernetes.io/name": "fairlead-forwarder"},
				Ports: ports}}
		if err := w.kube.Create(ctx, upstream); err != nil {
			return err
		}
		target := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: targetNamespace, Name: b.Spec.Service},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
				ExternalName: b.Spec.ProjectionID + ".fairlead.svc.cluster.local", Ports: ports}}
		if err := w.kube.Create(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

func boundEndpoint(i int) *v1alpha1.BoundEndpoint {
	service, id := fmt.Sprintf("svc-%05d", i), fmt.Sprintf("ep-%026d", i)
	return &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace,
		Name: service + "." + targetNamespace},
		Spec: v1alpha1.BoundEndpointSpec{Service: service, Namespace: targetNamespace, ProjectionID: id,
			State:     v1alpha1.StateBound,
			Endpoints: []v1alpha1.EndpointRef{{ID: id, URL: url(i)}},
			Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: int32(10_000 + i),
				State: v1alpha1.StateBound}}}}
}

func round(d time.Duration) string {
	if d > 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

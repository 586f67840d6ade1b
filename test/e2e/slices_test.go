// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const slicesMode = "binding.projection=endpointSlice"

// TestSlices_PodReachesEndpoint checks that a pod calls an endpoint through a Service with a
// ClusterIP and EndpointSlices, and that there is no upstream Service.
func TestSlices_PodReachesEndpoint(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "slices", "--set", slicesMode)
	c := r.c
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8301")
	pod := c.CurlPod(t, ns)
	r.Service.Agent(t, "http", "8301", "http://hello."+ns)
	bep := r.BoundEndpoint(t, "hello."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 15*time.Second, pod, "http://hello."+ns, 200)

	target := &corev1.Service{}
	must.Succeed(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "hello"}, target))
	if target.Spec.Type != corev1.ServiceTypeClusterIP || len(target.Spec.Selector) > 0 {
		t.Errorf("target Service: %+v", target.Spec)
	}
	err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: r.Namespace, Name: bep.Spec.ProjectionID},
		&corev1.Service{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("upstream Service: %v", err)
	}
	for _, s := range r.slices(t, "hello", ns) {
		if len(s.Endpoints) != 2 {
			t.Errorf("%s lists %+v", s.Name, s.Endpoints)
		}
	}
	for _, ip := range target.Spec.ClusterIPs {
		url := "http://" + net.JoinHostPort(ip, "80")
		if status, _, err := c.Curl(t.Context(), pod, url, "-H", "Host: hello."+ns); status != 200 {
			t.Errorf("%s: %d %v", url, status, err)
		}
	}
}

// TestSlices_FollowForwarders scales the forwarders to none and back: the slices are emptied, the
// record too, and no pod waits to the end of its grace period.
func TestSlices_FollowForwarders(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "scaled", "--set", slicesMode)
	c := r.c
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8302")
	pod := c.CurlPod(t, ns)
	r.Service.Agent(t, "http", "8302", "http://hello."+ns)
	c.CurlUntil(t, 30*time.Second, pod, "http://hello."+ns, 200)
	scale := func(replicas string) {
		c.Kubectl(t, "--namespace", r.Namespace, "scale", "deployment", r.Name+"-forwarder", "--replicas="+replicas)
	}
	began := time.Now()
	scale("0")
	c.Eventually(t, time.Minute, "slices without a forwarder", func(ctx context.Context) error {
		return r.expectListed(ctx, ns, 1, 0)
	})
	c.Eventually(t, time.Minute, "no forwarder, and none recorded", func(ctx context.Context) error {
		var o v1alpha1.KubernetesOperator
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &o); err != nil {
			return err
		}
		var pods corev1.PodList
		err := c.Client.List(ctx, &pods, client.InNamespace(r.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "fairlead-forwarder"})
		if err == nil && len(pods.Items)+len(o.Status.ProjectedForwarders) > 0 {
			err = fmt.Errorf("%d pods, recorded are %v", len(pods.Items), o.Status.ProjectedForwarders)
		}
		return err
	})
	t.Logf("two forwarders stopped in %v", time.Since(began).Round(time.Second))
	scale("2")
	c.CurlUntil(t, 30*time.Second, pod, "http://hello."+ns, 200)
}

// slices returns the EndpointSlices of a target Service.
func (r *Release) slices(t testing.TB, service, namespace string) []discoveryv1.EndpointSlice {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	must.Succeed(t, r.c.Client.List(t.Context(), &list, client.InNamespace(namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	return list.Items
}

// TestSlices_UnreadyForwarderLeaves checks that the address of a forwarder that is gone leaves 200
// slices, of 100 endpoints and both families, soon after it left Kubernetes' own, and then the
// record. The target is a second on a quiet machine, and the Lease in addition if the managers are
// killed, too. All of the time is 200 writes, 8 at a time, which nothing throttles: the limit adds
// three times what these take at the latency that another writer sees meanwhile, so that it holds
// where other tests run beside this one.
func TestSlices_UnreadyForwarderLeaves(t *testing.T) {
	t.Parallel()
	const endpoints, concurrent = 100, 8
	r, ns := InstallShared(t, "many", "--set", slicesMode)
	bindMany(t, openSession(t, r.c, r.Service), ns, endpoints)
	for _, kill := range []struct {
		further []string
		limit   time.Duration
	}{{nil, time.Second}, {[]string{"fairlead-manager"}, 17 * time.Second}} {
		latency := r.measureWrites(t, ns)
		took := r.killForwarder(t, ns, endpoints, kill.further...)
		write := latency()
		t.Logf("a dead forwarder's address left the slices of %d endpoints %v after Kubernetes' own "+
			"(killed beside it: %v; a write took %v)", endpoints, took, kill.further, write)
		if limit := kill.limit + 3*2*endpoints/concurrent*write; took > limit {
			t.Errorf("want %v", limit)
		}
	}
}

// measureWrites writes to the API server, one write after the other, until the function returned is
// called. That returns what nine of ten writes took at most.
func (r *Release) measureWrites(t *testing.T, ns string) func() time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "latency-", Namespace: ns}}
	must.Succeed(t, r.c.Client.Create(ctx, m))
	var took []time.Duration
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			began := time.Now()
			m.Data = map[string]string{"writes": strconv.Itoa(len(took))}
			err := r.c.Client.Update(ctx, m)
			took = append(took, time.Since(began))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() time.Duration {
		cancel()
		<-ended
		slices.Sort(took)
		return took[len(took)*9/10]
	}
}

// killForwarder kills a forwarder, and the pods of further components, and waits until the slices
// and the record are as they should be. It returns how long the slices listed the forwarder after
// Kubernetes' own had ceased to.
func (r *Release) killForwarder(t *testing.T, ns string, endpoints int, further ...string) time.Duration {
	t.Helper()
	c := r.c
	c.Eventually(t, time.Minute, "all slices", func(ctx context.Context) error {
		return r.expectListed(ctx, ns, endpoints, 2)
	})
	victim := r.slices(t, r.Name+"-forwarders", r.Namespace)[0].Endpoints[0]
	address := victim.Addresses[0]
	took := r.watchAddress(t, ns, address)
	kill := []string{"--namespace", r.Namespace, "delete", "pod", "--force", "--grace-period=0"}
	for _, component := range further {
		c.Kubectl(t, append(kill, "-l", "app.kubernetes.io/name="+component)...)
	}
	c.Kubectl(t, append(kill, victim.TargetRef.Name)...)
	c.Eventually(t, time.Minute, "the record is shortened, and the new forwarder in all slices",
		func(ctx context.Context) error {
			var o v1alpha1.KubernetesOperator
			if err := c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &o); err != nil {
				return err
			}
			if slices.Contains(o.Status.ProjectedForwarders, address) {
				return fmt.Errorf("recorded: %v", o.Status.ProjectedForwarders)
			}
			return r.expectListed(ctx, ns, endpoints, 2)
		})
	return took()
}

// expectListed returns an error unless each endpoint of the namespace has slices with so many ready
// forwarders, all of them recorded.
func (r *Release) expectListed(ctx context.Context, namespace string, endpoints, forwarders int) error {
	var list discoveryv1.EndpointSliceList
	if err := r.c.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	var o v1alpha1.KubernetesOperator
	if err := r.c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &o); err != nil {
		return err
	}
	services := map[string]bool{}
	for _, s := range list.Items {
		ready := 0
		for _, e := range s.Endpoints {
			if !*e.Conditions.Ready {
				continue
			}
			ready++
			if !slices.Contains(o.Status.ProjectedForwarders, e.Addresses[0]) {
				return fmt.Errorf("%s lists %s, recorded are %v", s.Name, e.Addresses[0], o.Status.ProjectedForwarders)
			}
		}
		if ready != forwarders {
			return fmt.Errorf("%s lists %d forwarders", s.Name, ready)
		}
		services[s.Labels[discoveryv1.LabelServiceName]] = true
	}
	if len(services) != endpoints {
		return fmt.Errorf("%d of %d endpoints have slices", len(services), endpoints)
	}
	return nil
}

// watchAddress measures how long after Kubernetes' slices the last one of a namespace ceases to
// list an address as ready. The function returned waits for that.
func (r *Release) watchAddress(t testing.TB, namespace, address string) func() time.Duration {
	t.Helper()
	watcher, err := client.NewWithWatch(r.c.Config, client.Options{Scheme: r.c.Client.Scheme()})
	must.Succeed(t, err)
	left := func(namespace string) chan time.Time {
		events, err := watcher.Watch(t.Context(), &discoveryv1.EndpointSliceList{}, client.InNamespace(namespace))
		must.Succeed(t, err)
		t.Cleanup(events.Stop)
		at := make(chan time.Time, 1)
		go func() {
			listed, before := map[string]bool{}, false // the watch begins with what there is
			for e := range events.ResultChan() {
				s, ok := e.Object.(*discoveryv1.EndpointSlice)
				if !ok {
					continue
				}
				delete(listed, s.Name)
				if _, ready := forwarderaddresses.Ready([]discoveryv1.EndpointSlice{*s})[address]; ready {
					listed[s.Name], before = true, true
				}
				if before && len(listed) == 0 {
					at <- time.Now()
					return
				}
			}
		}()
		return at
	}
	ours, kubernetes := left(namespace), left(r.Namespace)
	return func() time.Duration { return (<-ours).Sub(<-kubernetes) }
}

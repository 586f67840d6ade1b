// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// patience is how long the manager has to come to rest after a fault: much longer than it needs, as
// machines are slow.
const patience = 3 * time.Minute

// testCluster is an installation, a team's namespace with a Service that is not ours, and an
// account.
type testCluster struct {
	*testing.T
	own     installation.Installation
	target  string
	account *fakeAccount
	foreign []corev1.Service // as they are to stay
	traffic *counter
	config  *rest.Config
	users   map[int32]use // of target ports, as seen at rest
}

// use is the hostname that had a target port, and the time.
type use struct {
	hostname string
	at       time.Time
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	w := &testCluster{T: t, account: newFakeAccount(), traffic: &counter{}, config: config, users: map[int32]use{}}
	w.own = installation.Installation{Namespace: w.namespace("op-"), Release: "fairlead"}
	w.target = w.namespace("team-")
	w.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.anchor()}})
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.own.Namespace, Name: w.anchor()}})
	for _, place := range []client.ObjectKey{{Namespace: w.target, Name: "shop"}, {Namespace: w.target, Name: "other"},
		{Namespace: w.own.Namespace, Name: "other"}} {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: place.Namespace, Name: place.Name}}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		w.create(&s)
		w.foreign = append(w.foreign, s)
	}
	w.Cleanup(w.clear)
	return w
}

// clear gives the addresses of the Services back.
func (w *testCluster) clear() {
	ctx := context.WithoutCancel(w.Context())
	for _, namespace := range []string{w.own.Namespace, w.target} {
		var list corev1.ServiceList
		if err := kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			w.Error(err)
		}
		for i := range list.Items {
			if err := kube.Delete(ctx, &list.Items[i]); err != nil {
				w.Error(err)
			}
		}
	}
}

func (w *testCluster) anchor() string { return w.own.Namespace + "-anchor" }

func (w *testCluster) create(o client.Object) {
	w.Helper()
	if err := kube.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *testCluster) namespace(prefix string) string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	w.create(ns)
	return ns.Name
}

// createInitialState is what the account has at first: ports of their own and shared, one where a
// foreign Service stands, one that the selector excludes, one that is impossible.
func (w *testCluster) createInitialState() {
	for _, e := range []account.Endpoint{
		endpoint("ep-api", "http://api."+w.target, "ep-api", account.TypeAgent),
		endpoint("ep-db1", "tcp://db."+w.target+":5432", "ep-db1", account.TypeCloud),
		endpoint("ep-db2", "http://db."+w.target, "ep-db1", account.TypeAgent),
		endpoint("ep-web", "http://web."+w.target, "ep-web", account.TypeCloud),
		endpoint("ep-shop", "http://shop."+w.target, "ep-shop", account.TypeAgent),
		endpoint("hidden", "http://hidden."+w.target, "hidden", account.TypeAgent),
		endpoint("ep-bad", "https://bad."+w.target, "ep-bad", account.TypeAgent),
	} {
		w.account.put(e)
	}
}

// applyChanges is what happens to it: a hostname goes, a port of another goes, one comes, one
// flaps, one becomes a pool.
func (w *testCluster) applyChanges() {
	w.account.delete("ep-web")
	w.account.delete("ep-db1")
	w.account.delete("ep-api")
	w.account.put(endpoint("ep-new", "http://new."+w.target+":8080", "ep-new", account.TypeAgent))
	w.account.put(endpoint("ep-db3", "http://db."+w.target, "ep-db1", account.TypeAgent))
	w.account.put(endpoint("ep-api", "http://api."+w.target, "ep-api", account.TypeAgent))
}

// start runs a manager through the given transports, the last of them next to the API server, until
// stop is called or the test ends. ended is closed when it has ended.
func (w *testCluster) start(through ...transport) (stop func(), ended <-chan struct{}) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := operator.RunManager(ctx, w.options(append(through, w.traffic.transport))); err != nil &&
			ctx.Err() == nil {
			w.Errorf("the manager ended: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return stop, done
}

func (w *testCluster) options(through []transport) operator.ManagerOptions {
	c := rest.CopyConfig(w.config)
	for i := len(through) - 1; i >= 0; i-- {
		c.Wrap(through[i])
	}
	return operator.ManagerOptions{
		Namespace: w.own.Namespace, Release: w.own.Release, BindingEnabled: true,
		EndpointSelector: "ep.name != 'hidden'",
		PortRange:        "10000-32767",
		ClusterDomain:    "cluster.local", AnchorClusterRole: w.anchor(), AnchorRole: w.anchor(),
		ForwarderName: "fairlead-forwarder", ForwarderInstance: "fairlead",
		Kubernetes: c, Logger: slog.New(slog.DiscardHandler), Account: w.account, Registrar: w.account,
		Metrics: prometheus.NewRegistry(),
	}
}

// await polls until there is no complaint.
func (w *testCluster) await(what string, complaint func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := complaint()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: %v", what, err)
		}
		select {
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitConverged waits until the invariants hold and nothing is written any more, and checks the
// invariants once more.
func (w *testCluster) awaitConverged(when string) {
	w.Helper()
	w.await(when, w.invariantError)
	before := -1
	w.await(when+", and then quiet", w.traffic.quietSince(&before))
	if err := w.invariantError(); err != nil {
		w.Fatalf("%s, at rest: %v", when, err)
	}
	w.checkPortReuse(when)
}

// checkPortReuse checks that no target port has moved from one hostname to another within the
// minute for which it must stay unused.
func (w *testCluster) checkPortReuse(when string) {
	w.Helper()
	var objects v1alpha1.BoundEndpointList
	if err := kube.List(w.Context(), &objects, client.InNamespace(w.own.Namespace)); err != nil {
		w.Fatal(err)
	}
	for _, o := range objects.Items {
		for _, port := range o.Spec.Ports {
			if last, used := w.users[port.TargetPort]; used && last.hostname != o.Name &&
				time.Since(last.at) < time.Minute {
				w.Errorf("%s: target port %d of %s was that of %s %s ago", when, port.TargetPort, o.Name, last.hostname,
					time.Since(last.at))
			}
			w.users[port.TargetPort] = use{o.Name, time.Now()}
		}
	}
}

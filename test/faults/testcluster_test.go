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
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/fakeaccount"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// maxWait is how long the manager may take to converge after a fault: much longer than it needs,
// for slow machines.
const maxWait = 3 * time.Minute

// testCluster is an installation, a namespace with Services that are not Fairlead's, and an
// account.
type testCluster struct {
	*testing.T
	kube    *testenv.Kube
	own     installation.Installation
	target  string
	account *fakeaccount.Account
	foreign []corev1.Service // must not change
	traffic *counter
	config  *rest.Config
	lastUse map[int32]portUse // by target port
}

// portUse is the hostname that had a target port, and when it was last checked.
type portUse struct {
	hostname string
	at       time.Time
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	w := &testCluster{T: t, kube: testenv.NewKube(t, config), account: fakeaccount.New(), traffic: &counter{},
		config: config, lastUse: map[int32]portUse{}}
	w.own = installation.Installation{Namespace: w.kube.CreateNamespace("op-"), Release: "fairlead"}
	w.target = w.kube.CreateNamespace("team-")
	w.kube.MustCreate(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.anchor()}})
	w.kube.MustCreate(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.own.Namespace, Name: w.anchor()}})
	for _, key := range []client.ObjectKey{{Namespace: w.target, Name: "shop"}, {Namespace: w.target, Name: "other"},
		{Namespace: w.own.Namespace, Name: "other"}} {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		w.kube.MustCreate(&s)
		w.foreign = append(w.foreign, s)
	}
	w.Cleanup(w.deleteServices)
	return w
}

// deleteServices frees the addresses of the Services.
func (w *testCluster) deleteServices() {
	ctx := context.WithoutCancel(w.Context())
	for _, namespace := range []string{w.own.Namespace, w.target} {
		var list corev1.ServiceList
		if err := w.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			w.Error(err)
		}
		for i := range list.Items {
			if err := w.kube.Delete(ctx, &list.Items[i]); err != nil {
				w.Error(err)
			}
		}
	}
}

func (w *testCluster) anchor() string { return w.own.Namespace + "-anchor" }

// createInitialState creates endpoints: with own and shared hostnames, one with the name of a
// foreign Service, one that the selector excludes, and one with an invalid URL.
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
		w.account.Put(e)
	}
}

// applyChanges deletes a hostname and a port of another, adds a hostname, deletes one and adds it
// again, and makes one a pool.
func (w *testCluster) applyChanges() {
	w.account.Delete("ep-web")
	w.account.Delete("ep-db1")
	w.account.Delete("ep-api")
	w.account.Put(endpoint("ep-new", "http://new."+w.target+":8080", "ep-new", account.TypeAgent))
	w.account.Put(endpoint("ep-db3", "http://db."+w.target, "ep-db1", account.TypeAgent))
	w.account.Put(endpoint("ep-api", "http://api."+w.target, "ep-api", account.TypeAgent))
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
		Installation: w.own,
		KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true,
			EndpointSelector: "ep.name != 'hidden'"},
		ProjectionOptions: operator.ProjectionOptions{PortRange: "10000-32767", ClusterDomain: "cluster.local",
			Projection: v1alpha1.ProjectionExternalName},
		Roles: installation.Roles{ClusterRole: w.anchor(), Role: w.anchor()},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: "fairlead", ForwarderService: "fairlead-forwarders"},
		Process: options.Process{Kubernetes: c, Logger: slog.New(slog.DiscardHandler)},
		Substitutes: operator.Substitutes{Account: w.account, Registrar: w.account,
			Metrics: prometheus.NewRegistry()},
	}
}

// await polls until check returns nil.
func (w *testCluster) await(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(maxWait)
	for {
		err := check()
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

// awaitConverged waits until the invariants hold and the manager no longer writes, and checks the
// invariants again.
func (w *testCluster) awaitConverged(when string) {
	w.Helper()
	w.await(when, w.invariantError)
	before := -1
	w.await(when+", and then quiet", w.traffic.quietSince(&before))
	if err := w.invariantError(); err != nil {
		w.Fatalf("%s, converged: %v", when, err)
	}
	w.checkPortReuse(when)
}

// checkPortReuse checks that no target port has moved from one hostname to another within the
// minute for which it must stay unused.
func (w *testCluster) checkPortReuse(when string) {
	w.Helper()
	var objects v1alpha1.BoundEndpointList
	must.Succeed(w, w.kube.List(w.Context(), &objects, client.InNamespace(w.own.Namespace)))
	for _, o := range objects.Items {
		for _, port := range o.Spec.Ports {
			if last, used := w.lastUse[port.TargetPort]; used && last.hostname != o.Name &&
				time.Since(last.at) < time.Minute {
				w.Errorf("%s: target port %d of %s was that of %s %s ago", when, port.TargetPort, o.Name, last.hostname,
					time.Since(last.at))
			}
			w.lastUse[port.TargetPort] = portUse{o.Name, time.Now()}
		}
	}
}

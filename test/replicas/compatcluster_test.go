// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// compatCluster is the API server that the operators of all tests share. It has no nodes: the
// forwarders' pods are objects for the processes that the tests run.
var compatCluster struct {
	once sync.Once
	env  *testenv.Env
	err  error
}

// compatReleases counts the releases of all tests.
var compatReleases atomic.Int32

func startCompatCluster() { compatCluster.env, compatCluster.err = testenv.New() }

func stopCompatCluster() {
	if compatCluster.env != nil {
		_ = compatCluster.env.Stop()
	}
}

// release is an installation of the operator: a manager and one forwarder, as processes.
type release struct {
	r         *rig
	p         programs
	kube      *testenv.Kube
	number    int32
	namespace string
	target    string // the namespace that Services are projected into

	manager, forwarder *process
}

// startOperator installs an operator of one version.
func (r *rig) startOperator(p programs) *release {
	r.t.Helper()
	compatCluster.once.Do(startCompatCluster)
	if compatCluster.err != nil {
		r.t.Fatal(compatCluster.err)
	}
	n := compatReleases.Add(1)
	o := &release{r: r, p: p, kube: testenv.NewKube(r.t, compatCluster.env.Config), number: n,
		namespace: fmt.Sprintf("fairlead-%d", n), target: fmt.Sprintf("demo-%d", n)}
	for name, text := range map[string][]byte{"kubeconfig": compatCluster.env.Kubeconfig,
		"ca.crt": []byte(r.run("ca"))} {
		must.Succeed(r.t, os.WriteFile(filepath.Join(r.dir, name), text, 0o600))
	}
	o.createObjects()
	o.startManager()
	o.startForwarder()
	return o
}

func (o *release) podName() string { return "fairlead-forwarder-0" }

// podIP is the address at which the manager asks the forwarder for its status.
func (o *release) podIP() string { return fmt.Sprintf("127.3.%d.%d", o.number>>8, o.number&255) }

func (o *release) anchor() string { return o.namespace + ".fairlead-operator-anchor" }

// createObjects creates what the chart does, in part, and the forwarder's pod.
func (o *release) createObjects() {
	o.r.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.podName(),
		Labels: map[string]string{"app.kubernetes.io/name": "fairlead-forwarder",
			"app.kubernetes.io/instance": "fairlead"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "forwarder", Image: "example.com/none"}}}}
	o.kube.MustCreate(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.target}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: o.anchor()}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "fairlead-operator-anchor"}},
		pod,
	)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: o.podIP(),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must.Succeed(o.r.t, o.kube.Status().Update(o.r.t.Context(), pod))
}

func (o *release) env() []string {
	return []string{"KUBECONFIG=" + filepath.Join(o.r.dir, "kubeconfig"), "HOME=" + o.r.dir,
		"POD_NAME=" + o.podName(), "POD_IPS=" + o.podIP()}
}

// startManager starts the manager, which gives the one hostname of a test its only port.
func (o *release) startManager() {
	o.r.t.Helper()
	_, port, _ := net.SplitHostPort(freeAddr(o.r.t, "127.0.0.1"))
	o.manager = startProgram(o.r.t, o.p.operator(), o.p.name+" manager", o.env(), "manager",
		"--api-url", "https://"+o.r.balancer.addrs[frontService], "--api-key-file", filepath.Join(o.r.dir, "api-key"),
		"--ca-file", filepath.Join(o.r.dir, "ca.crt"), "--namespace", o.namespace, "--release", "fairlead",
		"--cluster-domain", "cluster.local", "--anchor-cluster-role", o.anchor(), "--forwarder-instance", "fairlead",
		"--port-range", port+"-"+port, "--metrics-addr", "", "--health-addr", "")
}

func (o *release) startForwarder() {
	o.r.t.Helper()
	o.forwarder = startProgram(o.r.t, o.p.operator(), o.p.name+" forwarder", o.env(), "forwarder",
		"--edge-address", o.r.balancer.addrs[frontService], "--authtoken-file", filepath.Join(o.r.dir, "authtoken"),
		"--ca-file", filepath.Join(o.r.dir, "ca.crt"), "--namespace", o.namespace, "--release", "fairlead",
		"--metrics-addr", "", "--health-addr", o.podIP()+":8081", "--drain-timeout", "5s")
}

// url is of the endpoint that is projected.
func (o *release) url() string { return "http://web." + o.target }

// boundEndpoint returns the projection of the endpoint's hostname; nil if there is none.
func (o *release) boundEndpoint() *v1alpha1.BoundEndpoint {
	b := &v1alpha1.BoundEndpoint{}
	key := client.ObjectKey{Namespace: o.namespace, Name: "web." + o.target}
	if err := o.kube.Get(context.WithoutCancel(o.r.t.Context()), key, b); err != nil {
		return nil
	}
	return b
}

// waitReady waits until the endpoint is projected and the forwarder serves it, and returns the
// forwarder's address.
func (o *release) waitReady() string {
	o.r.t.Helper()
	var b *v1alpha1.BoundEndpoint
	wait.Until(o.r.t, "endpoint to be projected and reachable", func() bool {
		b = o.boundEndpoint()
		return b != nil && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)
	})
	return fmt.Sprintf("127.0.0.1:%d", b.Spec.Ports[0].TargetPort)
}

// operator returns the release's KubernetesOperator.
func (o *release) operator() *v1alpha1.KubernetesOperator {
	o.r.t.Helper()
	k := &v1alpha1.KubernetesOperator{}
	key := client.ObjectKey{Namespace: o.namespace, Name: "fairlead"}
	must.Succeed(o.r.t, o.kube.Get(o.r.t.Context(), key, k))
	return k
}

// requireConditions fails the test when a condition of the KubernetesOperator is not as it is
// while all is well, and checks the installation as `helm test` does.
func (o *release) requireConditions(t testing.TB) {
	t.Helper()
	want := map[string]metav1.ConditionStatus{v1alpha1.ConditionRegistered: metav1.ConditionTrue,
		v1alpha1.ConditionAPIReachable: metav1.ConditionTrue, v1alpha1.ConditionEdgeReachable: metav1.ConditionTrue,
		v1alpha1.ConditionAccountChanged: metav1.ConditionFalse, v1alpha1.ConditionRemovalsHeld: metav1.ConditionFalse}
	var bad []string
	ok := func() bool {
		bad = nil
		for _, c := range o.operator().Status.Conditions {
			if c.Status != want[c.Type] {
				bad = append(bad, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
			}
		}
		return bad == nil
	}
	defer func() {
		if bad != nil {
			t.Logf("conditions: %s", strings.Join(bad, "; "))
		}
	}()
	wait.Until(t, "conditions of the operator", ok)
	check := startProgram(t, o.p.operator(), "check", o.env(), "check", "--namespace", o.namespace, "--release",
		"fairlead", "--kubeconfig", filepath.Join(o.r.dir, "kubeconfig"))
	if code := check.exitCode(); code != 0 {
		t.Errorf("fairlead-operator check: exit code %d: %s", code, check.log.String())
	}
}

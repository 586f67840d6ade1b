// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	benchPods      = 4000
	podAnnotations = 2600 // bytes of each pod's annotations
	podWriters     = 8
	settleFor      = 15 * time.Second // after a start or a list
	podChurnFor    = 30 * time.Second
	frozenFor      = 8 * time.Second // longer than a watch may be silent, so that everything is listed anew
	podMemoryGoal  = 10              // MiB more than without pods, of whose memory most is the program's file
)

// BenchmarkForwarderPods measures the memory of a forwarder that knows all pods of a cluster with
// long annotations, beside one that knows none: after the first list, after another one, and while
// pods change.
func BenchmarkForwarderPods(b *testing.B) {
	w := newControlPlane(b)
	w.makePods()
	program := buildOperator(b)
	without := startForwarder(b, w, program)
	with := startForwarder(b, w, program, "--pod-identity")
	f := &resultTable{}
	measure := func(what string) {
		b.Helper()
		base, _ := without.memory()
		now, peak := with.memory()
		f.add(fmt.Sprintf("%d pods, %s: MiB now, at the peak, without pods", benchPods, what),
			fmt.Sprintf("%.0f, %.0f, %.0f", now, peak, base), fmt.Sprintf("<= %.0f", base+podMemoryGoal))
		if peak > base+podMemoryGoal {
			b.Errorf("%s: %.0f MiB, without pods %.0f", what, peak, base)
		}
	}
	<-time.After(settleFor)
	measure("first list")
	must.Succeed(b, with.cmd.Process.Signal(syscall.SIGSTOP))
	<-time.After(frozenFor)
	must.Succeed(b, with.cmd.Process.Signal(syscall.SIGCONT))
	<-time.After(settleFor)
	measure("listed anew")
	f.add("changes of pods a second", fmt.Sprintf("%.0f", float64(w.churn())/podChurnFor.Seconds()), "")
	measure("pods changing")
	f.print(b)
}

// makePods makes running pods of the size that clusters with sidecars have.
func (w *controlPlane) makePods() {
	w.b.Helper()
	w.forEachPod(benchPods, func(ctx context.Context, i int) error {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: targetNamespace, Name: podName(i), Labels: map[string]string{"app": "bench"},
				Annotations: map[string]string{"example.com/configuration": strings.Repeat("x", podAnnotations)},
			},
			Spec: corev1.PodSpec{
				ServiceAccountName: "default", AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
			},
		}
		if err := w.kube.Create(ctx, p); err != nil {
			return err
		}
		ip := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: fmt.Sprintf("192.0.2.%d", i%200), PodIP: ip,
			PodIPs: []corev1.PodIP{{IP: ip}},
		}
		return w.kube.Status().Update(ctx, p)
	})
}

func podName(i int) string { return fmt.Sprintf("deployment-%d-7d4b9c6f5-x2k%d", i/3, i%3) }

// forEachPod does something for the numbers below n, several at a time.
func (w *controlPlane) forEachPod(n int, do func(ctx context.Context, i int) error) {
	w.b.Helper()
	var writers sync.WaitGroup
	for first := range podWriters {
		writers.Go(func() {
			for i := first; i < n && w.b.Context().Err() == nil; i += podWriters {
				if err := do(w.b.Context(), i); err != nil {
					w.b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	if w.b.Failed() {
		w.b.FailNow()
	}
}

// churn changes pods for a while and returns how often.
func (w *controlPlane) churn() int {
	w.b.Helper()
	changes, end := 0, time.Now().Add(podChurnFor)
	for i := 0; time.Now().Before(end); i++ {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: targetNamespace, Name: podName(i % benchPods)}}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%d"}}}`, i)
		must.Succeed(w.b, w.kube.Patch(w.b.Context(), p, client.RawPatch("application/merge-patch+json", patch)))
		changes++
	}
	return changes
}

// startForwarder runs `fairlead-operator forwarder` in the world, without an edge.
func startForwarder(b *testing.B, w *controlPlane, program string, more ...string) *process {
	b.Helper()
	dir := b.TempDir()
	kubeconfig, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "authtoken")
	must.Succeed(b, os.WriteFile(kubeconfig, w.env.Kubeconfig, 0o600))
	must.Succeed(b, os.WriteFile(token, []byte("flt_x"), 0o600))
	p := &process{b: b, log: &bytes.Buffer{}}
	args := append([]string{
		"forwarder", "--edge-address", "127.0.0.1:1", "--authtoken-file", token, "--namespace", operatorNamespace,
		"--release", release, "--metrics-addr", "", "--health-addr", "", "--drain-timeout", "0s",
	}, more...)
	p.cmd = exec.CommandContext(context.WithoutCancel(b.Context()), program, args...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	must.Succeed(b, p.cmd.Start())
	b.Cleanup(p.kill)
	return p
}

// kill ends a process that would take minutes to leave.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	if p.b.Failed() {
		p.b.Logf("the log ends with:\n%s", p.log.Bytes()[max(0, p.log.Len()-4000):])
	}
}

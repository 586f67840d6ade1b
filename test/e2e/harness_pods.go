// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// podTimeout bounds a pod's start, and its run where it is to end.
const podTimeout = 2 * time.Minute

// Namespace makes a namespace with a name of its own, and deletes it after the test without
// waiting.
func (c *Cluster) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	return c.namespace(t, prefix, nil)
}

// ProjectedNamespace is Namespace with a projection of its own, whatever the release's is.
func (c *Cluster) ProjectedNamespace(t testing.TB, prefix string, p v1alpha1.Projection) string {
	t.Helper()
	return c.namespace(t, prefix, map[string]string{v1alpha1.LabelProjection: string(p)})
}

func (c *Cluster) namespace(t testing.TB, prefix string, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Labels: labels}}
	if err := c.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting the namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// Pod describes a pod of one container, which is of the images that the node has.
type Pod struct {
	Namespace string
	Name      string            // empty: one is made up
	Labels    map[string]string // for a Service's selector
	Image     string            // ImageNettool, ImageCurl or one that Load gave the node
	Command   []string          // in the place of the image's entrypoint, unless empty
	Args      []string
}

func (p Pod) object() *corev1.Pod {
	grace, links := int64(1), false
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &links,
			Containers: []corev1.Container{{
				Name: "main", Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: p.Command,
				Args: p.Args,
			}},
		},
	}
	if p.Name == "" {
		o.GenerateName = "pod-"
	}
	return o
}

// StartPod runs a pod in the background and waits until it is Ready. It goes with its namespace.
func (c *Cluster) StartPod(t testing.TB, p Pod) *corev1.Pod {
	t.Helper()
	o := c.createPod(t, p)
	c.Eventually(t, podTimeout, "pod "+o.Name+" Ready", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		for _, cond := range o.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return describePod(o)
	})
	return o
}

// RunPod runs a pod to its end and returns its output, stdout and stderr together, and its exit
// code.
func (c *Cluster) RunPod(t testing.TB, p Pod) (output string, exit int) {
	t.Helper()
	o := c.createPod(t, p)
	c.Eventually(t, podTimeout, "pod "+o.Name+" ended", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return nil
		}
		return describePod(o)
	})
	if len(o.Status.ContainerStatuses) == 0 || o.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Fatalf("the end of pod %s is unknown: %v", o.Name, describePod(o))
	}
	return c.PodLogs(t, o), int(o.Status.ContainerStatuses[0].State.Terminated.ExitCode)
}

// PodExec runs a command in a pod's container and returns its stdout. The pod must be Ready.
func (c *Cluster) PodExec(ctx context.Context, pod *corev1.Pod, args ...string) (string, error) {
	return c.Exec(ctx, append([]string{"kubectl", "--namespace", pod.Namespace, "exec", pod.Name, "--"}, args...)...)
}

// PodLogs is all that a pod has written so far.
func (c *Cluster) PodLogs(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	return c.Kubectl(t, "--namespace", pod.Namespace, "logs", pod.Name)
}

func (c *Cluster) createPod(t testing.TB, p Pod) *corev1.Pod {
	t.Helper()
	o := p.object()
	// A new namespace has no service account for a moment, and pods are refused meanwhile.
	c.Eventually(t, 20*time.Second, "creating a pod in "+p.Namespace, func(ctx context.Context) error {
		return c.Client.Create(ctx, o)
	})
	return o
}

// describePod returns what a pod waits for.
func describePod(o *corev1.Pod) error {
	for _, s := range o.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil:
			return fmt.Errorf("pod %s is %s: %s: %s", o.Name, o.Status.Phase, s.State.Waiting.Reason,
				s.State.Waiting.Message)
		case s.State.Terminated != nil:
			return fmt.Errorf("pod %s ended: exit code %d: %s", o.Name, s.State.Terminated.ExitCode,
				s.State.Terminated.Message)
		}
	}
	return fmt.Errorf("pod %s is %s %s", o.Name, o.Status.Phase, o.Status.Message)
}

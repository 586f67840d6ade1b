// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestProjection runs the plain cases of projection with one operator, in a namespace of each mode:
// foreign Services, missing namespaces, agents that come and go, a service that restarts.
func TestProjection(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	r := c.StartService(t).Install(t)
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8201")
	var pods []*corev1.Pod
	for _, mode := range []v1alpha1.Projection{v1alpha1.ProjectionExternalName, v1alpha1.ProjectionEndpointSlice} {
		pod := c.CurlPod(t, c.ProjectedNamespace(t, "proj", mode))
		pods = append(pods, pod)
		t.Run(string(mode), func(t *testing.T) {
			t.Run("a foreign Service is never touched", func(t *testing.T) {
				testForeignService(t, r, pod.Namespace)
			})
			t.Run("a missing namespace is a condition, and its appearance projects", func(t *testing.T) {
				testMissingNamespace(t, r, mode)
			})
			t.Run("agents come and go, Services stay", func(t *testing.T) { testAgentRestarts(t, r, pod) })
		})
	}
	t.Run("a service that restarts costs no Service", func(t *testing.T) { testServiceRestart(t, r, pods...) })
}

func testForeignService(t *testing.T, r *Release, ns string) {
	c := r.c
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: %s, labels: {team: other}}
spec: {type: ExternalName, externalName: example.invalid}
`, ns))
	before := &corev1.Service{}
	key := client.ObjectKey{Namespace: ns, Name: "theirs"}
	must.Succeed(t, c.Client.Get(t.Context(), key, before))
	agent := r.Service.Agent(t, "http", "8201", "http://theirs."+ns)
	bep := r.BoundEndpoint(t, "theirs."+ns, v1alpha1.ConditionReady, "False", v1alpha1.ReasonConflict)
	for _, cond := range bep.Status.Conditions {
		if cond.Type == v1alpha1.ConditionServicesReady && !strings.Contains(cond.Message, "theirs") {
			t.Errorf("the message does not name the Service: %q", cond.Message)
		}
	}
	agent.Stop()
	c.Eventually(t, 20*time.Second, "the endpoint goes", func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(bep), bep)
		if err == nil && len(bep.Spec.Endpoints) > 0 {
			err = fmt.Errorf("still has %v", bep.Spec.Endpoints)
		}
		return client.IgnoreNotFound(err)
	})
	after := &corev1.Service{}
	must.Succeed(t, c.Client.Get(t.Context(), key, after))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("their Service changed: %s", diff)
	}
}

func testMissingNamespace(t *testing.T, r *Release, mode v1alpha1.Projection) {
	c := r.c
	name := fmt.Sprintf("late-%d", time.Now().UnixNano())
	r.Service.Agent(t, "http", "8201", "http://web."+name)
	r.BoundEndpoint(t, "web."+name, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNamespaceNotFound)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{v1alpha1.LabelProjection: string(mode)}}}
	must.Succeed(t, c.Client.Create(t.Context(), made))
	t.Cleanup(func() { _ = c.Client.Delete(context.WithoutCancel(t.Context()), made) })
	bep := r.BoundEndpoint(t, "web."+name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	if bep.Status.Projection != mode {
		t.Errorf("projected by %q", bep.Status.Projection)
	}
	c.CurlUntil(t, 15*time.Second, c.CurlPod(t, name), "http://web."+name, 200)
}

// serviceIdentities returns what must not change of a BoundEndpoint's two Services.
func serviceIdentities(t *testing.T, r *Release, bep *v1alpha1.BoundEndpoint) string {
	t.Helper()
	upstream, target := r.Services(t, bep)
	return fmt.Sprintf("%s %s %s %s", upstream.Name, upstream.UID, upstream.Spec.ClusterIP, target.UID)
}

func testAgentRestarts(t *testing.T, r *Release, pod *corev1.Pod) {
	c, host := r.c, "flap."+pod.Namespace
	url := "http://" + host
	agent := r.Service.Agent(t, "http", "8201", url)
	bep := r.BoundEndpoint(t, host, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 15*time.Second, pod, url, 200)
	before := serviceIdentities(t, r, bep)
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "kill -9": syscall.SIGKILL} {
		must.Succeed(t, agent.Signal(signal))
		<-agent.Ended()
		c.CurlUntil(t, 10*time.Second, pod, url, 503)
		agent = r.Service.Agent(t, "http", "8201", url)
		c.CurlUntil(t, 15*time.Second, pod, url, 200)
		if after := serviceIdentities(t, r, bep); after != before {
			t.Errorf("after %s: %s, before %s", name, after, before)
		}
	}
}

func testServiceRestart(t *testing.T, r *Release, pods ...*corev1.Pod) {
	expect := func(status int) (body string) {
		t.Helper()
		start := time.Now()
		for _, pod := range pods {
			body = r.c.CurlUntil(t, 30*time.Second, pod, "http://keep."+pod.Namespace, status)
		}
		t.Logf("%d after %v", status, time.Since(start).Round(time.Millisecond))
		return body
	}
	identities := func() (all string) {
		t.Helper()
		for _, pod := range pods {
			bep := r.BoundEndpoint(t, "keep."+pod.Namespace, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
			all += serviceIdentities(t, r, bep) + "\n"
		}
		return all
	}
	for _, pod := range pods {
		r.Service.Agent(t, "http", "8201", "http://keep."+pod.Namespace)
	}
	before := identities()
	expect(200)
	r.Service.Process.Kill()
	if body := expect(503); !strings.Contains(body, "ERR_FL_") {
		t.Errorf("body without a code: %q", body)
	}
	r.Service.Start(t)
	expect(200)
	if after := identities(); after != before {
		t.Errorf("after the restart:\n%sbefore:\n%s", after, before)
	}
}

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
)

// TestProjection runs the plain cases of projection with one operator: foreign Services, missing
// namespaces, agents that come and go, a service that restarts.
func TestProjection(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "proj")
	c := r.c
	pod := c.CurlPod(t, ns)
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8201")

	t.Run("a foreign Service is never touched", func(t *testing.T) { testForeignService(t, r, ns) })
	t.Run("a missing namespace is a condition, and its appearance projects", func(t *testing.T) {
		testMissingNamespace(t, r)
	})
	t.Run("agents come and go, Services stay", func(t *testing.T) { testAgentRestarts(t, r, ns, pod) })
	t.Run("a service that restarts costs no Service", func(t *testing.T) { testServiceRestart(t, r, ns, pod) })
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
	if err := c.Client.Get(t.Context(), key, before); err != nil {
		t.Fatal(err)
	}
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
	if err := c.Client.Get(t.Context(), key, after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("their Service changed: %s", diff)
	}
}

func testMissingNamespace(t *testing.T, r *Release) {
	c := r.c
	name := fmt.Sprintf("late-%d", time.Now().UnixNano())
	r.Service.Agent(t, "http", "8201", "http://web."+name)
	r.BoundEndpoint(t, "web."+name, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNamespaceNotFound)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Client.Delete(context.WithoutCancel(t.Context()), made) })
	r.BoundEndpoint(t, "web."+name, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 15*time.Second, c.CurlPod(t, name), "http://web."+name, 200)
}

// serviceIdentities returns what must not change of a BoundEndpoint's two Services.
func serviceIdentities(t *testing.T, r *Release, bep *v1alpha1.BoundEndpoint) string {
	t.Helper()
	upstream, target := r.Services(t, bep)
	return fmt.Sprintf("%s %s %s %s", upstream.Name, upstream.UID, upstream.Spec.ClusterIP, target.UID)
}

func testAgentRestarts(t *testing.T, r *Release, ns string, pod *corev1.Pod) {
	c, url := r.c, "http://flap."+ns
	agent := r.Service.Agent(t, "http", "8201", url)
	bep := r.BoundEndpoint(t, "flap."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 15*time.Second, pod, url, 200)
	before := serviceIdentities(t, r, bep)
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "kill -9": syscall.SIGKILL} {
		if err := agent.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-agent.Ended()
		c.CurlUntil(t, 10*time.Second, pod, url, 503)
		agent = r.Service.Agent(t, "http", "8201", url)
		c.CurlUntil(t, 15*time.Second, pod, url, 200)
		if after := serviceIdentities(t, r, bep); after != before {
			t.Errorf("after %s: %s, before %s", name, after, before)
		}
	}
}

func testServiceRestart(t *testing.T, r *Release, ns string, pod *corev1.Pod) {
	c, url := r.c, "http://keep."+ns
	r.Service.Agent(t, "http", "8201", url)
	bep := r.BoundEndpoint(t, "keep."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 15*time.Second, pod, url, 200)
	before := serviceIdentities(t, r, bep)
	r.Service.Process.Kill()
	start := time.Now()
	if body := c.CurlUntil(t, 30*time.Second, pod, url, 503); !strings.Contains(body, "ERR_FL_") {
		t.Errorf("body without a code: %q", body)
	}
	t.Logf("503 %v after the kill", time.Since(start).Round(time.Millisecond))
	r.Service.Start(t)
	start = time.Now()
	c.CurlUntil(t, 30*time.Second, pod, url, 200)
	t.Logf("200 %v after the service was ready again", time.Since(start).Round(time.Millisecond))
	if after := serviceIdentities(t, r, bep); after != before {
		t.Errorf("after the restart: %s, before: %s", after, before)
	}
}

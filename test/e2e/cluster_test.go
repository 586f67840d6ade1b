// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// clusterServices are Services in the namespace of an operator and one of a demo: what the product
// relies on.
const clusterServices = `
apiVersion: v1
kind: Service
metadata: {name: echo-id, namespace: %[1]s}
spec:
  selector: {app: echo}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: no-endpoints, namespace: %[1]s}
spec:
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: %[2]s}
spec: {type: ExternalName, externalName: echo-id.%[1]s.svc.cluster.local}
`

// TestCluster_Services checks that Services of the cluster work as the product needs them, without
// the product.
func TestCluster_Services(t *testing.T) {
	c := Shared(t)
	operator, demo := c.Namespace(t, "op"), c.Namespace(t, "demo")
	c.Apply(t, fmt.Sprintf(clusterServices, operator, demo))
	for range 2 {
		c.StartPod(t, Pod{Namespace: operator, Labels: map[string]string{"app": "echo"}, Image: ImageNettool,
			Args: []string{"serve", ":8080"}})
	}
	curl := c.StartPod(t, Pod{Namespace: demo, Image: ImageCurl, Command: []string{"sleep", "infinity"}})

	t.Run("a name of another namespace leads to both pods", func(t *testing.T) {
		pods := map[string]bool{}
		answer := regexp.MustCompile(`hello from (\S+),`)
		c.Eventually(t, 30*time.Second, "answers of two pods", func(ctx context.Context) error {
			out, err := c.PodExec(ctx, curl, "curl", "-sS", "-m", "5", "http://echo."+demo)
			if err != nil {
				return err
			}
			if m := answer.FindStringSubmatch(out); m != nil {
				pods[m[1]] = true
			}
			if len(pods) < 2 {
				return fmt.Errorf("answers of %v so far", pods)
			}
			return nil
		})
	})
	t.Run("the name is an alias of the Service's", func(t *testing.T) {
		out, exit := c.RunPod(t, Pod{Namespace: demo, Image: ImageNettool, Args: []string{"lookup", "echo." + demo}})
		if want := "is echo-id." + operator + ".svc.cluster.local. at [10.96."; exit != 0 ||
			!strings.Contains(out, want) {
			t.Errorf("exit code %d, output %q; want %q in it", exit, out, want)
		}
	})
	t.Run("ClusterIPs answer programs of the node", func(t *testing.T) {
		if status, body, err := c.get(t.Context(), "http://"+c.clusterIP(t, operator, "echo-id")+
			"/"); status != http.StatusOK || !strings.Contains(body, "hello from") {
			t.Errorf("status %d, body %q, %v", status, body, err)
		}
	})
	t.Run("a Service without endpoints refuses connections", func(t *testing.T) {
		url := "http://" + c.clusterIP(t, operator, "no-endpoints")
		c.Eventually(t, 30*time.Second, "refusal", func(ctx context.Context) error {
			out, err := c.PodExec(ctx, curl, "bash", "-c", "curl -sS -m 5 "+url+" 2>&1; echo code $?")
			if err == nil && !strings.Contains(out, "code 7") { // curl's code of a failed connect; 28 is a time-out
				err = fmt.Errorf("curl printed %q", out)
			}
			return err
		})
	})
}

func TestCluster_PodsReachProcessesOfNode(t *testing.T) {
	c := Shared(t)
	p := c.Start(t, "digest", "nettool", "digest", NodeIP+":7001")
	p.WaitOutput(t, 10*time.Second, `serving TCP on (\S+)`)
	out, exit := c.RunPod(t, Pod{Namespace: c.Namespace(t, "demo"), Image: ImageNettool,
		Args: []string{"send", NodeIP + ":7001", "1048576"}})
	if exit != 0 || !strings.HasPrefix(out, "1048576 bytes ") {
		t.Errorf("exit code %d, output %q", exit, out)
	}
	p.Stop()
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

func TestHarness_KilledProcessIsGone(t *testing.T) {
	c := Shared(t)
	p := c.Start(t, "echo", "nettool", "echo", NodeIP+":7002")
	p.WaitOutput(t, 10*time.Second, `serving TCP on`)
	p.Kill()
	if code := p.ExitCode(); code != -1 { // of `cluster exec` itself, which a signal ended
		t.Errorf("exit code %d, want -1", code)
	}
	c.Eventually(t, 5*time.Second, "port free", func(ctx context.Context) error {
		conn, err := c.DialContext(ctx, "tcp", NodeIP+":7002")
		if err == nil {
			return fmt.Errorf("still answering: %w", conn.Close())
		}
		return nil
	})
}

func TestHarness_ExecPassesSignalsAndCodes(t *testing.T) {
	c := Shared(t)
	p := c.Start(t, "trap", "bash", "-c", `trap 'echo got INT; exit 42' INT; echo ready; while :; do sleep 0.05; done`)
	p.WaitOutput(t, 10*time.Second, "ready")
	must.Succeed(t, p.Signal(syscall.SIGINT))
	p.WaitOutput(t, 10*time.Second, "got INT")
	if code := p.ExitCode(); code != 42 {
		t.Errorf("exit code %d, want 42", code)
	}
}

func (c *Cluster) clusterIP(t *testing.T, namespace, name string) string {
	t.Helper()
	var svc corev1.Service
	must.Succeed(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &svc))
	return svc.Spec.ClusterIP + ":80"
}

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
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestPod_CallsEndpoint does what the README begins with: server, chart, agent, and a pod that
// calls.
func TestPod_CallsEndpoint(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "demo")
	c, s := r.c, r.Service
	pod := c.CurlPod(t, ns)
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8080")
	agent := s.Agent(t, "http", "8080", "http://hello."+ns, "--description", "says hello")
	bep := r.BoundEndpoint(t, "hello."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)

	t.Run("the call is answered by the upstream", func(t *testing.T) {
		body := c.CurlUntil(t, 15*time.Second, pod, "http://hello."+ns+"/some/path", 200)
		if !strings.Contains(body, "/some/path") || !strings.Contains(body, "hello from") {
			t.Errorf("body %q", body)
		}
	})
	t.Run("the two Services are as documented", func(t *testing.T) { checkServices(t, r, bep) })
	t.Run("the API shows endpoint and operator", func(t *testing.T) {
		checkAPI(t, s, bep.Spec.Endpoints[0].ID, "says hello")
	})
	t.Run("an upstream that is down is a 502 with a sentence", func(t *testing.T) {
		s.Agent(t, "http", "1", "http://down."+ns)
		r.BoundEndpoint(t, "down."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
		if body := c.CurlUntil(t, 15*time.Second, pod, "http://down."+ns, 502); !strings.Contains(body, "ERR_FL_3002") {
			t.Errorf("body %q", body)
		}
	})
	t.Run("a second agent on the URL is told who has it", func(t *testing.T) {
		second := s.AgentOnly(t, "http", "8080", "http://hello."+ns)
		if code := second.ExitCode(); code == 0 || !strings.Contains(second.Output(), "taken") {
			t.Errorf("exit code %d, output %q", code, second.Output())
		}
	})
	t.Run("goodbye removes the endpoint at once and the Services after the delay", func(t *testing.T) {
		must.Succeed(t, agent.Signal(syscall.SIGINT))
		if code := agent.ExitCode(); code != 0 {
			t.Errorf("exit code %d after Ctrl-C: %s", code, agent.Output())
		}
		c.CurlUntil(t, 10*time.Second, pod, "http://hello."+ns, 503)
		upstream, target := r.Services(t, bep)
		c.Gone(t, 50*time.Second, target.Namespace, target.Name, &corev1.Service{})
		c.Gone(t, 10*time.Second, upstream.Namespace, upstream.Name, &corev1.Service{})
	})
}

// checkAPI checks that the API lists this endpoint, which is online, and one operator.
func checkAPI(t *testing.T, s *Service, endpointID, description string) {
	var endpoints struct {
		Endpoints []struct{ ID, URL, Status, Description string }
	}
	s.API(t, "/endpoints", &endpoints)
	if len(endpoints.Endpoints) != 1 || endpoints.Endpoints[0].ID != endpointID ||
		endpoints.Endpoints[0].Status != "online" || endpoints.Endpoints[0].Description != description {
		t.Errorf("endpoints %+v", endpoints)
	}
	var operators struct {
		Operators []struct{ ID, Description string }
	}
	s.API(t, "/kubernetes_operators", &operators)
	if len(operators.Operators) != 1 || operators.Operators[0].Description != "end-to-end" {
		t.Errorf("operators %+v", operators)
	}
}

// checkServices checks name, selector and port of the upstream Service, and where the target
// Service leads.
func checkServices(t *testing.T, r *Release, bep *v1alpha1.BoundEndpoint) {
	upstream, target := r.Services(t, bep)
	if upstream.Name != bep.Spec.Endpoints[0].ID {
		t.Errorf("the upstream Service is called %q, want the endpoint's id %q", upstream.Name,
			bep.Spec.Endpoints[0].ID)
	}
	if got := upstream.Spec.Selector["app.kubernetes.io/name"]; got != "fairlead-forwarder" {
		t.Errorf("selector %v", upstream.Spec.Selector)
	}
	if upstream.Spec.Type != corev1.ServiceTypeClusterIP || len(upstream.Spec.Ports) != 1 ||
		upstream.Spec.Ports[0].Port != 80 ||
		upstream.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("upstream Service %+v", upstream.Spec)
	}
	if diff := cmp.Diff(intstr.FromInt32(bep.Spec.Ports[0].TargetPort), upstream.Spec.Ports[0].TargetPort); diff != "" {
		t.Error(diff)
	}
	if port := bep.Spec.Ports[0].TargetPort; port < 10000 || port > 32767 {
		t.Errorf("target port %d", port)
	}
	want := fmt.Sprintf("%s.%s.svc.cluster.local", upstream.Name, r.Namespace)
	if target.Spec.Type != corev1.ServiceTypeExternalName || target.Spec.ExternalName != want {
		t.Errorf("target Service is %s %q, want %q", target.Spec.Type, target.Spec.ExternalName, want)
	}
}

// TestPod_CallsTCPEndpoint checks that bytes of a tcp endpoint arrive as sent, and that half-close,
// abort and several ports of one hostname work through every hop.
func TestPod_CallsTCPEndpoint(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "data")
	c, s := r.c, r.Service
	pod := c.NettoolPod(t, ns)
	c.StartUpstream(t, "echo", "echo", "127.0.0.1:8101")
	digest := c.StartUpstream(t, "digest", "digest", "127.0.0.1:8102")
	c.StartUpstream(t, "web", "serve", "127.0.0.1:8103")
	s.Agent(t, "tcp", "8101", "tcp://db."+ns+":5432")
	s.Agent(t, "tcp", "8102", "tcp://db."+ns+":5433")
	s.Agent(t, "http", "8103", "http://db."+ns)
	bep := r.BoundEndpoint(t, "db."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.Eventually(t, 20*time.Second, "three ports of one hostname", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(bep), bep); err != nil {
			return err
		}
		if _, err := c.PodExec(ctx, pod, "/nettool", "transfer", "db."+ns+":5432", "1000"); err != nil {
			return err
		}
		if _, err := c.PodExec(ctx, pod, "/nettool", "send", "db."+ns+":5433", "1000"); err != nil {
			return err
		}
		_, err := c.PodExec(ctx, pod, "/nettool", "get", "http://db."+ns)
		return err
	})
	upstream, _ := r.Services(t, bep)
	if len(upstream.Spec.Ports) != 3 {
		t.Errorf("ports %+v, want 3", upstream.Spec.Ports)
	}

	run := func(args ...string) string {
		t.Helper()
		out, err := c.PodExec(t.Context(), pod, append([]string{"/nettool"}, args...)...)
		must.Succeed(t, err)
		t.Logf("%s: %s", strings.Join(args, " "), out)
		return out
	}
	t.Run("half-close: the answer comes after the end", func(t *testing.T) {
		run("send", "db."+ns+":5433", "10000000")
	})
	t.Run("1 GiB there and back, byte-exact", func(t *testing.T) { run("transfer", "db."+ns+":5432", "1073741824") })
	t.Run("an abort is not an end", func(t *testing.T) {
		run("abort", "db."+ns+":5433", "1000000")
		digest.WaitOutput(t, 10*time.Second, `after \d+ bytes: .*reset`)
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// doctor runs `fairlead doctor URL …` with the real kubectl.
func (c *Cluster) doctor(
	ctx context.Context, t testing.TB, environment []string, url string, more ...string,
) (path.Report, error) {
	t.Helper()
	home := t.TempDir()
	args := append([]string{"env", "HOME=" + home, "XDG_CONFIG_HOME=" + home}, environment...)
	args = append(append(args, binary(t, "fairlead"), "doctor", url, "-o", "json"), more...)
	if c.context != "" {
		args = append(args, "--context", c.context)
	}
	out, err := c.Exec(ctx, args...)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return path.Report{}, err
	}
	var r path.Report
	if jsonErr := json.Unmarshal([]byte(out), &r); jsonErr != nil {
		return r, errors.Join(jsonErr, err)
	}
	if (err == nil) != r.OK {
		return r, fmt.Errorf("ok is %v with exit error %w", r.OK, err)
	}
	return r, nil
}

// waitBrokenHop waits until the doctor names this hop, and returns it. Every status is a moment
// old.
func (c *Cluster) waitBrokenHop(t testing.TB, hop, url string, more ...string) path.Hop {
	t.Helper()
	var found path.Hop
	c.Eventually(t, 30*time.Second, "doctor names "+hop, func(ctx context.Context) error {
		r, err := c.doctor(ctx, t, nil, url, more...)
		if err == nil && r.Broken != hop {
			err = fmt.Errorf("broken is %q: %+v", r.Broken, r.Hops)
		}
		if h := r.Hop(r.Broken); h != nil {
			found = *h
		}
		return err
	})
	t.Logf("%s: %s; fix: %s", hop, found.Detail, strings.ReplaceAll(found.Fix, "\n", " "))
	if found.Detail == "" || found.Fix == "" {
		t.Errorf("a broken hop without words: %+v", found)
	}
	return found
}

// TestDoctor_NamesBrokenHop breaks one hop after another of one installation: the doctor names the
// hop that is broken (promise 5).
func TestDoctor_NamesBrokenHop(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	ns := c.Namespace(t, "doctor")
	pod := c.CurlPod(t, ns)
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8501")
	url := "http://api." + ns

	c.waitBrokenHop(t, path.HopOperator, url, "--operator-namespace", ns)

	r := s.Install(t)
	c.waitBrokenHop(t, path.HopEndpoint, url, "--operator-namespace", r.Namespace)
	agent := s.Agent(t, "http", "8501", url)
	r.BoundEndpoint(t, "api."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.CurlUntil(t, 30*time.Second, pod, url, 200)
	c.checkHealthy(t, s, url, ns+"/"+pod.Name)

	sliced := "http://api." + c.ProjectedNamespace(t, "doctor", v1alpha1.ProjectionEndpointSlice)
	s.Agent(t, "http", "8501", sliced)
	c.CurlUntil(t, 30*time.Second, pod, sliced, 200)
	c.checkHealthy(t, s, sliced, ns+"/"+pod.Name)

	s.Agent(t, "http", "8501", "http://web.no-"+ns)
	c.waitBrokenHop(t, path.HopNamespace, "http://web.no-"+ns)

	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: %s, labels: {app.kubernetes.io/managed-by: their-team}}
spec: {type: ExternalName, externalName: example.invalid}
`, ns))
	s.Agent(t, "http", "8501", "http://theirs."+ns)
	if h := c.waitBrokenHop(t, path.HopService, "http://theirs."+ns); !strings.Contains(h.Detail, "their-team") {
		t.Errorf("the owner is not named: %q", h.Detail)
	}

	s.Agent(t, "http", "8599", "http://down."+ns)
	s.Agent(t, "tcp", "8599", "tcp://down."+ns+":5432")
	c.CurlUntil(t, 30*time.Second, pod, "http://down."+ns, 502)
	c.waitBrokenHop(t, path.HopUpstream, "http://down."+ns)
	if _, _, err := c.Curl(t.Context(), pod, "telnet://down."+ns+":5432"); err == nil {
		t.Error("a connection to an upstream that is down ended well")
	}
	c.waitBrokenHop(t, path.HopUpstream, "tcp://down."+ns+":5432")

	must.Succeed(t, agent.Signal(syscall.SIGKILL))
	c.waitBrokenHop(t, path.HopAgent, url)
	out := c.Kubectl(t, "--namespace", r.Namespace, "describe", "bep", "api."+ns)
	if !strings.Contains(out, v1alpha1.ReasonAgentOffline) || !strings.Contains(out, "no agent is connected") {
		t.Errorf("kubectl describe bep does not say why:\n%s", out)
	}

	s.Agent(t, "http", "8501", url)
	r.BoundEndpoint(t, "api."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	s.Process.Kill()
	c.waitBrokenHop(t, path.HopEdge, url)
}

// checkHealthy checks that the doctor finds nothing broken, without and with the account API.
func (c *Cluster) checkHealthy(t *testing.T, s *Service, url, pod string) {
	t.Helper()
	for _, way := range [][]string{nil,
		{"FAIRLEAD_API_KEY=" + s.APIKey, "FAIRLEAD_SERVER_URL=" + s.URL, "FAIRLEAD_CA_FILE=" + s.CAFile}} {
		start := time.Now()
		report, err := c.doctor(t.Context(), t, way, url, "--from-pod", pod)
		must.Succeed(t, err)
		t.Logf("%d hops in %v", len(report.Hops), time.Since(start).Round(time.Millisecond))
		for _, h := range report.Hops {
			t.Logf("%-16s %-8s %s", h.Name, h.Status, h.Detail)
			if h.Status != path.OK && h.Name != path.HopDNS {
				t.Errorf("%s is %s: %s %q", h.Name, h.Status, h.Detail, h.Evidence)
			}
		}
		if !report.OK {
			t.Errorf("broken is %q", report.Broken)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// createResource posts to the account API with the admin key and returns the id of what was made.
func (s *Service) createResource(t testing.TB, path string, body map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(body)
	must.Succeed(t, err)
	secret := strings.NewReader(fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", s.APIKey))
	out, err := s.c.ExecInput(t.Context(), secret, "curl", "-K", "-", "-sS", "-m", "10", "--cacert", s.CAFile, "-H",
		"Service-Version: 2",
		"-H", "Content-Type: application/json", "-d", string(raw), s.URL+path)
	var made struct{ ID string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err == nil && made.ID == "" {
		err = errors.New("nothing was made")
	}
	if err != nil {
		t.Fatalf("asking the API to make %s %s: %v: %s", path, raw, err, out)
	}
	return made.ID
}

// startTunnel starts `fairlead tunnel` and waits until it is online.
func (s *Service) startTunnel(t testing.TB, label, target string) *Process {
	t.Helper()
	home := t.TempDir()
	p := s.c.StartEnv(t, "fairlead-tunnel", []string{"FAIRLEAD_AUTHTOKEN=" + s.Authtoken}, "env", "HOME="+home,
		"XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home,
		binary(t, "fairlead"), "tunnel", target, "--label", label, "--server", s.URL, "--ca-file", s.CAFile)
	p.WaitOutput(t, 15*time.Second, `(?i)\bonline\b`)
	return p
}

// secondChild is what the second child of the failover answers.
const secondChild = "the second child"

// createFailoverEndpoint makes a cloud endpoint with a failover backend: the tunnels with the label
// app=api, then secondChild.
func (s *Service) createFailoverEndpoint(t testing.TB, url string) {
	t.Helper()
	group := s.createResource(t, "/backends/tunnel_group", map[string]any{"labels": map[string]string{"app": "api"}})
	second := s.createResource(t, "/backends/http_response", map[string]any{"status_code": 200, "body": secondChild})
	failover := s.createResource(t, "/backends/failover", map[string]any{"backends": []string{group, second}})
	s.createResource(t, "/endpoints", map[string]any{"url": url, "type": "cloud", "bindings": []string{"kubernetes"},
		"traffic_policy": fmt.Sprintf(
			"on_http_request: [{actions: [{type: forward-backend, config: {backend_id: %s}}]}]",
			failover)})
}

// waitSecondChild waits until the second child answers, or no longer does, and returns when that
// was.
func (c *Cluster) waitSecondChild(t testing.TB, pod *corev1.Pod, url string, wanted bool) time.Time {
	t.Helper()
	c.Eventually(t, 30*time.Second, fmt.Sprintf("second child serves: %v", wanted), func(ctx context.Context) error {
		status, body, err := c.Curl(ctx, pod, url)
		if err == nil && (status != 200 || (body == secondChild) != wanted) {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})
	return time.Now()
}

// TestCloudEndpoint_FailsOver calls a cloud endpoint from a pod. While the first child of its
// failover backend is away the second one answers, and the first again once it is back; the
// Services stay as they are.
func TestCloudEndpoint_FailsOver(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "cloud")
	c, s := r.c, r.Service
	host := "api." + ns
	url := "http://" + host
	pod := c.NettoolPod(t, ns)
	curl := c.CurlPod(t, ns)
	port := freePort()
	c.StartUpstream(t, "web", "serve", "127.0.0.1:"+port)
	first := s.startTunnel(t, "app=api", port)

	s.createFailoverEndpoint(t, url)
	bep := r.BoundEndpoint(t, host, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	before := serviceIdentities(t, r, bep)
	c.waitAnswers(t, pod, url)

	c.waitSecondChild(t, curl, url, false)
	calls := c.startLoad(t, pod, "-v", "-rate", "50", url)
	waitCalls := func(n int) { // waits for n further answers, of either backend
		t.Helper()
		had := len(calls.samples())
		c.Eventually(t, time.Minute, "further requests", func(context.Context) error {
			if got := len(calls.samples()) - had; got < n {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
	}
	waitCalls(100)
	stopped := time.Now()
	must.Succeed(t, first.Signal(syscall.SIGINT))
	switched := c.waitSecondChild(t, curl, url, true)
	_ = first.ExitCode()
	waitCalls(100)
	returned := time.Now()
	s.startTunnel(t, "app=api", port)
	back := c.waitSecondChild(t, curl, url, false)
	waitCalls(100)
	sum := calls.stop(t)
	for _, q := range calls.samples() {
		if !q.ok && !underWayAt(q.at, stopped) {
			t.Errorf("a request failed %v after the first child was stopped: %s", q.at.Sub(stopped), q.reason)
		}
	}
	t.Logf(
		"%d requests answered, %d failed, slowest %v; the second child was seen %v after the stop, the first %v after "+
			"its start", sum.OK, sum.Failed, sum.Slowest,
		switched.Sub(stopped), back.Sub(returned))
	if sum.Failed > 5 {
		t.Errorf("%d requests failed; only those under way at the agent that stopped may", sum.Failed)
	}
	if after := serviceIdentities(t, r, bep); after != before {
		t.Errorf("Services %s, before %s", after, before)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// variableRest sets how long the manager is watched at rest; the default keeps the suite short and
// is longer than a heartbeat.
const variableRest = "FAIRLEAD_E2E_REST"

// TestManager_WritesNothingAtRest checks that a manager that has nothing to do writes nothing but
// its Lease. It runs alone: the API server counts the writes of all clients.
func TestManager_WritesNothingAtRest(t *testing.T) {
	window := durationOf(t, variableRest, 75*time.Second)
	r, ns := InstallShared(t, "rest")
	sliced := r.c.ProjectedNamespace(t, "rest", v1alpha1.ProjectionEndpointSlice)
	for i, namespace := range []string{ns, ns, sliced} {
		host := fmt.Sprintf("still-%d.%s", i, namespace)
		r.Service.Agent(t, "http", "8301", "http://"+host)
		r.BoundEndpoint(t, host, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	client, err := kubernetes.NewForConfig(r.c.Config)
	must.Succeed(t, err)
	waitCounts(t, r, 3)
	waitNoWrites(t, r.c, client)
	before := writes(t, client)
	timer := time.NewTimer(window)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
	after := writes(t, client)
	leases := after["leases"] - before["leases"]
	delete(before, "leases")
	delete(after, "leases")
	for resource, n := range after {
		if n != before[resource] {
			t.Errorf("%d writes of %s in %v at rest", n-before[resource], resource, window)
		}
	}
	t.Logf("%v at rest with 3 endpoints: %d Lease renewals (manager, node), no other write", window, leases)
}

// waitCounts waits until the KubernetesOperator shows the number of hostnames, which it does not do
// at once.
func waitCounts(t *testing.T, r *Release, want int32) {
	t.Helper()
	op := &v1alpha1.KubernetesOperator{}
	r.c.Eventually(t, 90*time.Second, "the KubernetesOperator's counts", func(ctx context.Context) error {
		err := r.c.Client.Get(ctx, ctrl.ObjectKey{Namespace: r.Namespace, Name: r.Name}, op)
		if err == nil && (op.Status.BoundEndpoints != want || op.Status.ReadyEndpoints != want) {
			err = fmt.Errorf("status is %+v", op.Status)
		}
		return err
	})
}

// waitNoWrites waits until the API server has counted no write for two seconds.
func waitNoWrites(t *testing.T, c *Cluster, client kubernetes.Interface) {
	t.Helper()
	last, since := writes(t, client), time.Now()
	c.Eventually(t, time.Minute, "quiet cluster", func(context.Context) error {
		now := writes(t, client)
		delete(now, "leases")
		delete(last, "leases")
		if !maps.Equal(last, now) {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("quiet for %v", quiet)
		}
		return nil
	})
}

var requestLine = regexp.MustCompile(`^apiserver_request_total\{(.*)\} ([0-9.e+]+)$`)

// writes counts the writes of the API server by resource. Reviews of access are questions, not
// writes.
func writes(t *testing.T, client kubernetes.Interface) map[string]int {
	t.Helper()
	raw, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must.Succeed(t, err)
	count := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		m := requestLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		verb, resource := labelValue(m[1], "verb"), labelValue(m[1], "resource")
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		switch verb {
		case "POST", "PUT", "PATCH", "DELETE", "APPLY":
			// The kubelet reports its node's status every five minutes; nothing of ours may write
			// nodes.
			if resource != "nodes" && !strings.HasSuffix(resource, "reviews") {
				count[resource] += int(n)
			}
		}
	}
	return count
}

func labelValue(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

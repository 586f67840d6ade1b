// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	serverReplicasPort = "31446"
	serverReplicas     = 3
)

// TestServerChart_Replicas runs three replicas, and replaces all of them and deletes one while pods
// call an endpoint: no call fails.
func TestServerChart_Replicas(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	if c.context != "" {
		t.Skip("PostgreSQL runs on this machine")
	}
	r := installReplicas(t, c)
	c.StartUpstream(t, "web", "serve", "127.0.0.1:8232")
	ns := c.Namespace(t, "caller")
	operator := r.Install(t)
	url := "http://web." + ns
	r.Agent(t, "http", "8232", url)
	operator.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	f := &traffic{c: c, ns: ns, pod: c.NettoolPod(t, ns), urls: []string{url}}
	c.waitAnswers(t, f.pod, url)
	operator.waitLegs(t, serverReplicas)
	id := r.endpoint(t)
	f.startLoads(t)

	began := time.Now()
	before := r.replicaPods(t)
	c.Helm(t, r.args("upgrade", "--set", "metrics.enabled=true")...)
	r.waitReplaced(t, before)
	t.Logf("replacing %d replicas: %v", serverReplicas, time.Since(began).Round(time.Second))
	f.checkNoFailures(t, "rolling the replicas")
	operator.waitLegs(t, serverReplicas)

	one := r.replicaPods(t)[:1]
	c.Kubectl(t, "--namespace", r.namespace, "delete", "pod", one[0])
	r.waitReplaced(t, one)
	f.checkNoFailures(t, "deleting a replica")
	operator.waitLegs(t, serverReplicas)

	if asked, failed := f.stopLoads(t); failed > 0 || asked == 0 {
		t.Errorf("%d of %d calls failed", failed, asked)
	}
	if now := r.endpoint(t); now != id {
		t.Errorf("the endpoint was %s and is %s", id, now)
	}
	r.helmTest(t)
}

// installReplicas installs the chart with three replicas, whose authority is that of the database.
func installReplicas(t *testing.T, c *Cluster) *serverRelease {
	t.Helper()
	r := newPostgresRelease(t, c, "replicas", serverReplicasPort)
	r.APIKey, r.Authtoken = "flk_"+randomSecret(), "flt_"+randomSecret()
	r.ForwarderToken = r.Authtoken // one of a Secret may bind and connect
	r.createSecret(t, "generic", "first", "--from-literal=api-key="+r.APIKey, "--from-literal=authtoken="+r.Authtoken)
	r.extraFlags = append(r.extraFlags, "--set", fmt.Sprintf("replicas=%d", serverReplicas), "--set",
		"bootstrap.existingSecret=first", "--set", "shutdownDelay=5s", "--set", "networkPolicy.enabled=true")
	c.Helm(t, r.args("install")...)
	ca := c.Kubectl(t, "--namespace", r.namespace, "exec", "deployment/fairlead-fairlead-server", "--",
		"/fairlead-server", "ca", "--database-url-file", "/etc/fairlead/database/url")
	r.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(r.CAFile, []byte(ca), 0o600))
	return r
}

// randomSecret returns what follows the prefix of a credential.
func randomSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return base64.RawURLEncoding.EncodeToString(secret)
}

// replicaPods returns the names of the release's pods, of which there must be three.
func (r *serverRelease) replicaPods(t *testing.T) []string {
	t.Helper()
	pods := strings.Fields(r.pod(t))
	if len(pods) != serverReplicas {
		t.Fatalf("pods %v, want %d", pods, serverReplicas)
	}
	return pods
}

// waitReplaced waits until the pods are gone and as many others are ready.
func (r *serverRelease) waitReplaced(t *testing.T, pods []string) {
	t.Helper()
	for _, pod := range pods {
		r.c.Gone(t, time.Minute, r.namespace, pod, &corev1.Pod{})
	}
	r.c.Kubectl(t, "--namespace", r.namespace, "rollout", "status", "deployment/fairlead-fairlead-server",
		"--timeout=90s")
}

// waitLegs waits until each forwarder of the release is connected to so many replicas, and to none
// that is about to stop.
func (r *Release) waitLegs(t *testing.T, n int) {
	t.Helper()
	r.c.Eventually(t, time.Minute, fmt.Sprintf("forwarders connected to %d replicas", n),
		func(ctx context.Context) error {
			statuses, err := r.forwarderStatuses(ctx)
			if err == nil && len(statuses) == 0 {
				err = errors.New("no forwarders")
			}
			for pod, st := range statuses {
				serving := slices.DeleteFunc(st.Session.Legs, func(l forwarderLeg) bool { return l.Draining })
				if len(serving) != n || st.Session.WantedLegs != n {
					err = errors.Join(err, fmt.Errorf("%s is connected to %d of %d replicas", pod, len(serving),
						st.Session.WantedLegs))
				}
			}
			return err
		})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// TestPods_RunUnderAnyUID runs the operator with its ServiceAccounts' tokens under the users and
// groups that policies give out, as OpenShift does, and calls through it.
func TestPods_RunUnderAnyUID(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	home, demo := c.Namespace(t, "fairlead"), c.Namespace(t, "demo")
	c.Kubectl(t, "label", "namespace", home, "pod-security.kubernetes.io/enforce=restricted")
	cluster := s.trustCluster(t, home)
	args := func(user, group string) []string {
		return []string{"--set", "credentials.apiKey=", "--set", "credentials.authtoken=",
			"--set", "credentials.serviceAccount.enabled=true", "--set",
			"credentials.serviceAccount.accountID=" + cluster.Audience[strings.LastIndex(cluster.Audience, "/")+1:],
			"--set", "podSecurityContext.runAsGroup=null,podSecurityContext.runAsUser=" + user,
			"--set", "podSecurityContext.fsGroup=" + group}
	}
	r := s.InstallIn(t, home, "fairlead-operator", args("1000680000", "1000680000")...)
	web, _ := c.startUpstreams(t)
	s.Agent(t, "http", web, "http://uid."+demo)
	r.BoundEndpoint(t, "uid."+demo, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	pod := c.CurlPod(t, demo)
	c.CurlUntil(t, 30*time.Second, pod, "http://uid."+demo, 200)
	for _, ids := range [][2]string{{"1000680001", "null"}, {"null", "null"}} { // the last is the image's user
		r.Upgrade(t, args(ids[0], ids[1])...)
		c.CurlUntil(t, 30*time.Second, pod, "http://uid."+demo, 200)
	}
}

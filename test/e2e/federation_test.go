// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestFederation_InstallsWithoutSecrets installs as the README says: the service is given the
// cluster's keys, and manager, forwarders and exporters present the tokens that the kubelet mounts.
func TestFederation_InstallsWithoutSecrets(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	home, demo := c.Namespace(t, "fairlead"), c.Namespace(t, "demo")
	cluster := s.trustCluster(t, home)
	accountID := cluster.Audience[strings.LastIndex(cluster.Audience, "/")+1:]
	r := s.InstallIn(t, home, "fairlead-operator", "--set", "credentials.apiKey=", "--set", "credentials.authtoken=",
		"--set", "credentials.serviceAccount.enabled=true", "--set",
		"credentials.serviceAccount.accountID="+accountID, "--set", "export.enabled=true")

	var secrets corev1.SecretList
	must.Succeed(t, c.Client.List(t.Context(), &secrets, client.InNamespace(home)))
	for i := range secrets.Items {
		if typ := secrets.Items[i].Type; typ != "helm.sh/release.v1" {
			t.Errorf("Secret %s of type %s", secrets.Items[i].Name, typ)
		}
	}
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: api, namespace: %[1]s}
spec: {selector: {app: api}, ports: [{port: 8080}]}
---
apiVersion: bindings.fairlead.dev/v1alpha1
kind: AgentEndpoint
metadata: {name: api, namespace: %[1]s}
spec: {url: "http://exported.%[1]s", upstream: {url: "http://api:8080"}}
`, demo))
	c.StartPod(t, Pod{Namespace: demo, Name: "api", Labels: map[string]string{"app": "api"}, Image: ImageNettool,
		Args: []string{"serve", ":8080"}})
	r.BoundEndpoint(t, "exported."+demo, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	pod := c.CurlPod(t, demo)
	c.CurlUntil(t, 30*time.Second, pod, "http://exported."+demo, 200)

	s.fairlead(t, "", "api", "clusters", "delete", cluster.ID)
	c.CurlUntil(t, 10*time.Second, pod, "http://exported."+demo, 503)
}

// trustCluster makes the service trust the ServiceAccounts of a release in the namespace, as the
// README does it.
func (s *Service) trustCluster(t testing.TB, namespace string) (made account.Cluster) {
	t.Helper()
	out := s.fairlead(t, s.c.issuerKeys(t), "api", "clusters", "create", "--name", "prod", "--jwks-file", "-",
		"--namespace", namespace, "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Audience == "" {
		t.Fatalf("the cluster: %v: %s", err, out)
	}
	return made
}

// issuerKeys returns the cluster's discovery document and the keys of its ServiceAccounts' tokens.
func (c *Cluster) issuerKeys(t testing.TB) string {
	t.Helper()
	return c.Kubectl(t, "get", "--raw", "/.well-known/openid-configuration") +
		c.Kubectl(t, "get", "--raw", "/openid/v1/jwks")
}

// fairlead runs a command of the account's API as a user does, and returns what it prints.
func (s *Service) fairlead(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	home := t.TempDir()
	command := append([]string{"env", "HOME=" + home, "FAIRLEAD_API_KEY=" + s.APIKey, "FAIRLEAD_SERVER_URL=" + s.URL,
		"FAIRLEAD_CA_FILE=" + s.CAFile, binary(t, "fairlead")}, args...)
	out, err := s.c.ExecInput(t.Context(), strings.NewReader(stdin), command...)
	must.Succeed(t, err)
	return out
}

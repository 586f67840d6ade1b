// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// endpointTrust trusts what the owner of the authorities in a file has signed, as an indented block.
const endpointTrust = `
apiVersion: bindings.fairlead.dev/v1alpha1
kind: EndpointTrust
metadata: {name: databases, namespace: %s}
spec:
  endpoints: [db, plain]
  mode: Require
  authorities:
  - |
    %s
`

// callerSecret is the certificate of a cluster as a caller, with its key: two indented blocks.
const callerSecret = `
apiVersion: v1
kind: Secret
metadata: {name: seal-caller, namespace: %s}
type: kubernetes.io/tls
stringData:
  tls.crt: |
    %s
  tls.key: |
    %s
`

// indented returns a file as a block of YAML that is indented by 4.
func indented(t *testing.T, file ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(file...))
	must.Succeed(t, err)
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

// TestSealed_BetweenPodAndAgent seals a tcp endpoint as docs/secure/sealed.md does, with an agent that
// serves proven callers only, and then trusts another owner.
func TestSealed_BetweenPodAndAgent(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	home, demo := c.Namespace(t, "fairlead"), c.Namespace(t, "demo")
	audience := s.trustCluster(t, home).Audience
	accountID, dir := audience[strings.LastIndex(audience, "/")+1:], t.TempDir()
	owner, thief, agent := filepath.Join(dir, "owner"), filepath.Join(dir, "thief"), filepath.Join(dir, "agent")
	caller := filepath.Join(dir, "caller")
	for _, roots := range []string{owner, thief} {
		s.fairlead(t, "", "seal", "init", "--account", accountID, "--dir", roots)
	}
	s.fairlead(t, "", "seal", "request", "--out", agent)
	s.fairlead(t, "", "seal", "sign", "--dir", owner, "--url", "tcp://*."+demo+":5432", filepath.Join(agent, "tls.csr"))
	s.fairlead(t, "", "seal", "request", "--out", caller)
	s.fairlead(t, "", "seal", "sign", "--dir", owner, "--caller", "cluster-1", filepath.Join(caller, "tls.csr"))
	c.Apply(t, fmt.Sprintf(callerSecret, home, indented(t, caller, "tls.crt"), indented(t, caller, "tls.key")))
	r := s.InstallIn(t, home, "fairlead-operator", "--set", "binding.sealAccount="+accountID,
		"--set", "binding.sealCallerSecret=seal-caller")
	trust := func(roots string) {
		c.Apply(t, fmt.Sprintf(endpointTrust, demo, indented(t, roots, "authorities.pem")))
	}
	trust(owner)
	_, echo := c.startUpstreams(t)
	sealed := s.Agent(t, "tcp", echo, "tcp://db."+demo+":5432", "--sealed", agent, "--seal-callers",
		filepath.Join(owner, "authorities.pem"))
	sealed.WaitOutput(t, 5*time.Second, `Sealed +by the key sha256/`)
	s.Agent(t, "tcp", echo, "tcp://plain."+demo+":5432")
	for _, name := range []string{"db.", "plain."} {
		r.BoundEndpoint(t, name+demo, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	pod := c.NettoolPod(t, demo)
	call := func(ctx context.Context, name string) error {
		_, err := c.PodExec(ctx, pod, "/nettool", "transfer", name+demo+":5432", "1000000")
		return err
	}
	c.Eventually(t, 30*time.Second, "a call of the sealed endpoint", func(ctx context.Context) error {
		return call(ctx, "db.")
	})
	sealed.WaitOutput(t, 5*time.Second, `open +.* of cluster-1`)
	if call(t.Context(), "plain.") == nil {
		t.Error("a plain endpoint was called where the namespace requires sealed ones")
	}
	trust(thief)
	c.Eventually(t, 10*time.Second, "no call by another owner's trust", func(ctx context.Context) error {
		if call(ctx, "db.") == nil {
			return fmt.Errorf("it was served")
		}
		return nil
	})
}

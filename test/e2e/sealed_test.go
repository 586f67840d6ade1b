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

// sealOwner is the owner of an account who seals its endpoints.
type sealOwner struct {
	service     *Service
	account     string // id
	roots       string // folder of the roots
	authorities string // file of their certificates
}

// newSealOwner makes the roots of the service's account.
func newSealOwner(t testing.TB, s *Service) sealOwner {
	t.Helper()
	var page struct {
		AccountID string `json:"account_id"`
	}
	s.API(t, "/endpoints", &page)
	roots := filepath.Join(t.TempDir(), "roots")
	s.fairlead(t, "", "seal", "init", "--account", page.AccountID, "--dir", roots)
	return sealOwner{s, page.AccountID, roots, filepath.Join(roots, "authorities.pem")}
}

// agent returns the folder of an agent whose certificate names the URL.
func (o sealOwner) agent(t testing.TB, url string) string {
	t.Helper()
	return o.signed(t, "--url", url)
}

// signed returns a folder with a key and a certificate for what the flags name.
func (o sealOwner) signed(t testing.TB, flags ...string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "signed")
	o.service.fairlead(t, "", "seal", "request", "--out", folder)
	o.service.fairlead(t, "", append(append([]string{"seal", "sign", "--dir", o.roots}, flags...),
		filepath.Join(folder, "tls.csr"))...)
	return folder
}

// indented returns a file as a block of YAML that is indented by 4.
func indented(t testing.TB, file ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(file...))
	must.Succeed(t, err)
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

// requireSeal makes the namespace's object that requires a seal of the endpoints, with the owner's
// authorities.
func (o sealOwner) requireSeal(t testing.TB, namespace string, endpoints ...string) {
	t.Helper()
	o.service.c.Apply(t, fmt.Sprintf(`
apiVersion: bindings.fairlead.dev/v1alpha1
kind: EndpointTrust
metadata: {name: sealed, namespace: %s}
spec:
  endpoints: [%s]
  mode: Require
  authorities:
  - |
    %s
`, namespace, strings.Join(endpoints, ", "), indented(t, o.authorities)))
}

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

// TestSealed_BetweenPodAndAgent seals a tcp and an http endpoint as docs/secure/sealed.md does, the first
// for proven callers only, and then trusts another owner.
func TestSealed_BetweenPodAndAgent(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	home, demo := c.Namespace(t, "fairlead"), c.Namespace(t, "demo")
	owner, thief := newSealOwner(t, s), newSealOwner(t, s)
	caller := owner.signed(t, "--caller", "cluster-1")
	c.Apply(t, fmt.Sprintf(callerSecret, home, indented(t, caller, "tls.crt"), indented(t, caller, "tls.key")))
	r := s.InstallIn(t, home, "fairlead-operator", "--set", "binding.sealAccount="+owner.account,
		"--set", "binding.sealCallerSecret=seal-caller")
	owner.requireSeal(t, demo, "db", "web", "plain")
	web, echo := c.startUpstreams(t)
	agent := owner.agent(t, "tcp://*."+demo+":5432")
	sealed := s.Agent(t, "tcp", echo, "tcp://db."+demo+":5432", "--sealed", agent, "--seal-callers", owner.authorities)
	sealed.WaitOutput(t, 5*time.Second, `Sealed +by the key sha256/`)
	s.Agent(t, "http", web, "http://web."+demo, "--sealed", owner.agent(t, "http://web."+demo))
	s.Agent(t, "tcp", echo, "tcp://plain."+demo+":5432")
	for _, name := range []string{"db.", "web."} {
		r.BoundEndpoint(t, name+demo, v1alpha1.ConditionSealed, "True", v1alpha1.ReasonAuthority)
		r.BoundEndpoint(t, name+demo, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	r.BoundEndpoint(t, "plain."+demo, v1alpha1.ConditionSealed, "False", v1alpha1.ReasonNotSealed)
	pod := c.NettoolPod(t, demo)
	call := func(ctx context.Context, name string) error {
		_, err := c.PodExec(ctx, pod, "/nettool", "transfer", name+demo+":5432", "1000000")
		return err
	}
	c.waitAnswers(t, pod, "http://web."+demo)
	c.Eventually(t, 30*time.Second, "a call of the sealed endpoint", func(ctx context.Context) error {
		return call(ctx, "db.")
	})
	sealed.WaitOutput(t, 5*time.Second, `open +.* of cluster-1`)
	if call(t.Context(), "plain.") == nil {
		t.Error("a plain endpoint was called where the namespace requires sealed ones")
	}
	thief.requireSeal(t, demo, "db", "web", "plain")
	c.Eventually(t, 10*time.Second, "no call by another owner's trust", func(ctx context.Context) error {
		if call(ctx, "db.") == nil {
			return fmt.Errorf("it was served")
		}
		return nil
	})
}

// TestSealed_TokensProveForwarders calls an agent that serves proven callers only, with forwarders whose one
// proof is the token that the kubelet projects.
func TestSealed_TokensProveForwarders(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	home, demo := c.Namespace(t, "fairlead"), c.Namespace(t, "demo")
	owner := newSealOwner(t, s)
	forwarder := "prod:" + home + "/fairlead-operator-forwarder=-"
	s.fairlead(t, c.issuerKeys(t), "seal", "clusters", "--dir", owner.roots, forwarder)
	s.InstallIn(t, home, "fairlead-operator", "--set", "binding.sealAccount="+owner.account, "--set",
		"binding.sealed=require", "--set-file", "binding.sealAuthority="+owner.authorities,
		"--set", "binding.sealCallerToken=true")
	_, echo := c.startUpstreams(t)
	url := "tcp://db." + demo + ":5432"
	agent := s.Agent(t, "tcp", echo, url, "--sealed", owner.agent(t, url), "--seal-callers", owner.authorities,
		"--seal-clusters", filepath.Join(owner.roots, "clusters.jws"))
	pod := c.NettoolPod(t, demo)
	c.Eventually(t, 30*time.Second, "a call of the sealed endpoint", func(ctx context.Context) error {
		_, err := c.PodExec(ctx, pod, "/nettool", "transfer", "db."+demo+":5432", "1000000")
		return err
	})
	agent.WaitOutput(t, 5*time.Second, `open +.* of prod`)
}

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
	folder := filepath.Join(t.TempDir(), "agent")
	o.service.fairlead(t, "", "seal", "request", "--out", folder)
	o.service.fairlead(t, "", "seal", "sign", "--dir", o.roots, "--url", url, filepath.Join(folder, "tls.csr"))
	return folder
}

// requireSeal makes the namespace's object that requires a seal of the endpoints, with the owner's
// authorities.
func (o sealOwner) requireSeal(t testing.TB, namespace string, endpoints ...string) {
	t.Helper()
	pem, err := os.ReadFile(o.authorities)
	must.Succeed(t, err)
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
`, namespace, strings.Join(endpoints, ", "), strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n    ")))
}

// TestSealed_BetweenPodAndAgent seals a tcp and an http endpoint as docs/secure/sealed.md does, and then
// trusts another owner.
func TestSealed_BetweenPodAndAgent(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	demo := c.Namespace(t, "demo")
	owner, thief := newSealOwner(t, s), newSealOwner(t, s)
	r := s.Install(t, "--set", "binding.sealAccount="+owner.account)
	owner.requireSeal(t, demo, "db", "web", "plain")
	web, echo := c.startUpstreams(t)
	agent := owner.agent(t, "tcp://*."+demo+":5432")
	s.Agent(t, "tcp", echo, "tcp://db."+demo+":5432", "--sealed", agent).
		WaitOutput(t, 5*time.Second, `Sealed +by the key sha256/`)
	s.Agent(t, "http", web, "http://web."+demo, "--sealed", owner.agent(t, "http://web."+demo))
	s.Agent(t, "tcp", echo, "tcp://plain."+demo+":5432")
	for _, name := range []string{"db.", "web.", "plain."} {
		r.BoundEndpoint(t, name+demo, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	}
	pod := c.NettoolPod(t, demo)
	call := func(ctx context.Context, name string) error {
		_, err := c.PodExec(ctx, pod, "/nettool", "transfer", name+demo+":5432", "1000000")
		return err
	}
	c.waitAnswers(t, pod, "http://web."+demo)
	c.Eventually(t, 30*time.Second, "a call of the sealed endpoint", func(ctx context.Context) error {
		return call(ctx, "db.")
	})
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

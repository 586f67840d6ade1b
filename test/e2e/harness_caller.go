// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Enforcing starts a cluster of this test's that enforces NetworkPolicies, beside the suite's.
func Enforcing(t testing.TB) *Cluster {
	t.Helper()
	if reason := whySkip(); reason != "" {
		t.Skip(reason)
	}
	if os.Getenv(variableContext) != "" {
		t.Skipf("NetworkPolicies are enforced, and pods entered, in clusters of the cluster program: unset %s",
			variableContext)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	c, err := boot(ctx, clusterName()+"-policies", "--network-policies")
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("ending the cluster %s: %v", c.name, err)
		}
	})
	return c
}

// caller is a pod that calls from its own network without the API server: commands enter it from
// the node.
type caller struct {
	c    *Cluster
	pod  *corev1.Pod
	pid  string            // of a process in the pod's network, in the node
	ips  map[string]string // of hostnames, so that calls need no DNS
	name string            // namespace/name
}

// callerPod describes a caller.
type callerPod struct {
	namespace, name string
	labels          map[string]string
	serviceAccount  string
	hostNetwork     bool
}

// startCaller starts a pod that does nothing by itself, and finds its network. ips may get more
// hostnames later.
func (c *Cluster) startCaller(t testing.TB, p callerPod, ips map[string]string) *caller {
	t.Helper()
	o := Pod{Namespace: p.namespace, Name: p.name, Labels: p.labels, Image: ImageNettool,
		Args: []string{"sleep"}}.object()
	o.Spec.ServiceAccountName, o.Spec.HostNetwork = p.serviceAccount, p.hostNetwork
	c.Eventually(t, 20*time.Second, "creating the pod "+p.name, func(ctx context.Context) error {
		return c.Client.Create(ctx, o)
	})
	a := &caller{c: c, pod: o, name: p.namespace + "/" + p.name, ips: ips}
	a.waitReady(t)
	return a
}

func (a *caller) waitReady(t testing.TB) {
	t.Helper()
	a.c.Eventually(t, podTimeout, "pod "+a.name+" runs", func(ctx context.Context) error {
		if err := a.c.Client.Get(ctx, client.ObjectKeyFromObject(a.pod), a.pod); err != nil {
			return err
		}
		if s := a.pod.Status.ContainerStatuses; len(s) != 1 || s[0].State.Running == nil {
			return describePod(a.pod)
		}
		return nil
	})
	_, id, _ := strings.Cut(a.pod.Status.ContainerStatuses[0].ContainerID, "://")
	for line := range strings.Lines(a.c.mustRun(t, "ctr", "-n", "k8s.io", "tasks", "list")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == id {
			a.pid = f[1]
			return
		}
	}
	t.Fatalf("containerd has no task of %s", a.name)
}

// remove deletes the pod and waits until its address is free.
func (a *caller) remove(t testing.TB) {
	t.Helper()
	must.Succeed(t, a.c.Client.Delete(t.Context(), a.pod, client.GracePeriodSeconds(0)))
	a.c.Eventually(t, 30*time.Second, "the address of "+a.name+" free", func(ctx context.Context) error {
		out, err := a.c.Exec(ctx, "ls", addressFolder)
		if err == nil && strings.Contains(out+"\n", a.pod.Status.PodIP+"\n") {
			err = errors.New(out)
		}
		return err
	})
}

// addressFolder is where the node's CNI plugin notes addresses.
const addressFolder = "/run/cni-ipam/node"

// giveNext lets the next pod of the node have an IPv4 address, which must be free.
func (c *Cluster) giveNext(t testing.TB, ip string) {
	t.Helper()
	before, last := cutLast(ip, ".")
	n, err := strconv.Atoi(last)
	must.Succeed(t, err)
	c.mustRun(t, "sh", "-c", fmt.Sprintf("printf %s.%d > %s", before, n-1, path.Join(addressFolder,
		"last_reserved_ip.0")))
}

// inside is a command in the pod's network.
func (a *caller) inside(args ...string) []string {
	return append([]string{"nsenter", "--net=/proc/" + a.pid + "/ns/net"}, args...)
}

// The outcomes of a call that is not answered with a status.
const (
	callReset   = "reset"   // the connection was reset, or ended before an answer
	callDropped = "dropped" // packets are not answered
)

// call calls a URL once, over a connection of its own, and returns the status of the answer and its
// body, or callReset or callDropped. A tcp:// URL is one of an echo: its answer is "echo".
func (a *caller) call(ctx context.Context, target string) (outcome, body string) {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error(), ""
	}
	port := cmp.Or(u.Port(), "80")
	ip := a.ips[u.Hostname()]
	if ip == "" {
		return "no address of " + u.Hostname(), ""
	}
	if u.Scheme == "tcp" {
		return a.echo(ctx, ip+":"+port)
	}
	out, err := a.c.Exec(ctx, a.inside("curl", "-sS", "-m", "4", "--connect-timeout", "2", "-w", "\n%{http_code}",
		"--resolve", u.Hostname()+":"+port+":"+ip, target)...)
	body, code := cutLast(out, "\n")
	return curlOutcome(code, err), body
}

// curlOutcome is the status, or what curl's exit code means.
func curlOutcome(status string, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return status
	case !errors.As(err, &exit):
		return err.Error()
	case exit.ExitCode() == 28:
		return callDropped
	case exit.ExitCode() == 52 || exit.ExitCode() == 56:
		return callReset
	}
	return err.Error()
}

// echo sends a kilobyte through an echo and back.
func (a *caller) echo(ctx context.Context, addr string) (outcome, body string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := a.c.Exec(ctx, a.inside("nettool", "transfer", addr, "1000")...)
	switch {
	case err == nil:
		return "echo", ""
	case ctx.Err() != nil:
		return callDropped, ""
	case strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "broken pipe"):
		return callReset, ""
	}
	return err.Error(), ""
}

// wantCalls waits until every caller gets the outcome at the URL, each within the same time.
func wantCalls(t testing.TB, url, want string, callers ...*caller) (body string) {
	t.Helper()
	for _, a := range callers {
		a.c.Eventually(t, 20*time.Second, fmt.Sprintf("%s gets %s at %s", a.name, want, url),
			func(ctx context.Context) error {
				outcome, answer := a.call(ctx, url)
				if body = answer; outcome != want {
					return fmt.Errorf("%s: %s", outcome, answer)
				}
				return nil
			})
	}
	return body
}

// hold opens a busy connection with an echo from the pod's network and waits until it is open.
func (a *caller) hold(t testing.TB, target string) *Process {
	t.Helper()
	u, err := url.Parse(target)
	must.Succeed(t, err)
	p := a.c.Start(t, "hold", a.inside("nettool", "hold", a.ips[u.Hostname()]+":"+u.Port())...)
	p.WaitOutput(t, 15*time.Second, "held for")
	return p
}

// wantHeld fails the test if a held connection has ended.
func wantHeld(t testing.TB, p *Process, when string) {
	t.Helper()
	select {
	case <-p.Ended():
		t.Errorf("%s: the connection has ended: %s", when, p.Output())
	default:
	}
}

// serviceAccount makes a ServiceAccount.
func (c *Cluster) serviceAccount(t testing.TB, namespace, name string) {
	t.Helper()
	o := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	must.Succeed(t, c.Client.Create(t.Context(), o))
}

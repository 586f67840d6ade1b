// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// policyPod is a pod of policyWorld: each can ask and answers at 8080 and 9090.
type policyPod struct {
	key     string // namespace/name
	network string // "hostNetwork: true", or empty
	ports   []string
}

// policyPods are the pods of the scenarios. b/two gives the names of the ports to the other
// numbers; a/host has the node's network.
var policyPods = []policyPod{
	{key: "a/one", ports: []string{"http 8080", "admin 9090"}},
	{key: "a/two", ports: []string{"http 8080", "admin 9090", "echo 7070"}},
	{key: "b/one", ports: []string{"http 8080", "admin 9090"}},
	{key: "b/two", ports: []string{"http 9090", "admin 8080"}},
	{key: "c/one", ports: []string{"http 8080", "admin 9090"}},
	{key: "a/host", network: "hostNetwork: true", ports: []string{"http 18080"}},
}

const policyNamespaces = `
{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: red}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: b, labels: {team: blue}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: c, labels: {team: blue}}}
`

// probeLoop reads lines "ID KIND HOST PORT" and answers each with "ID yes", "ID dropped" or what else
// happened. A question of DNS by UDP is ". NS".
const probeLoop = `while read -r id kind host port; do
{ if [ $kind = udp ]; then
    exec 3<>/dev/udp/$host/$port
    printf '\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01' >&3
    if read -r -t 0.7 -N 1 -u 3; then echo $id yes; else echo $id dropped; fi
  else
    curl -g -s -m 0.7 -o /dev/null http://$host:$port/; code=$?
    case $code in 0) echo $id yes;; 28) echo $id dropped;; *) echo $id curl exit code $code;; esac
  fi; } &
done`

// prober asks from a pod, any number of questions at a time.
type prober struct {
	in io.Writer

	mu      sync.Mutex
	next    int
	answers map[int]chan string
}

// policyWorld is a cluster that enforces NetworkPolicies, with policyPods.
type policyWorld struct {
	cli
	addrs   map[string][]string // of pods and "dns", IPv4 first
	probers map[string]*prober
}

func (w *policyWorld) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := w.command(append([]string{"exec", "--", "kubectl"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (p policyPod) manifest() string {
	namespace, name, _ := strings.Cut(p.key, "/")
	containers := `  - {name: ask, image: "fairlead.test/curl:1", command: [sleep, infinity]}` + "\n"
	for _, port := range p.ports {
		word, number, _ := strings.Cut(port, " ")
		serve := map[bool]string{true: "echo", false: "serve"}[word == "echo"]
		containers += fmt.Sprintf(`  - name: %s
    image: fairlead.test/nettool:1
    args: [%s, ":%s"]
    ports: [{name: %s, containerPort: %s}]
    readinessProbe: {tcpSocket: {port: %s}, periodSeconds: 1, failureThreshold: 1}
`, word, serve, number, word, number, number)
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: %s, labels: {app: %s}}\n"+
		"spec:\n  terminationGracePeriodSeconds: 0\n  %s\n  containers:\n%s", namespace, name, name, p.network,
		containers)
}

// newPolicyWorld starts the cluster and the pods, and learns their addresses.
func newPolicyWorld(t *testing.T) *policyWorld {
	t.Helper()
	needsNode(t)
	w := &policyWorld{cli: newCLI(t, "test-policies"), addrs: map[string][]string{}, probers: map[string]*prober{}}
	w.cleanUp()
	up := []string{"up", "--network-policies"}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		up = append(up, "--dual-stack")
	}
	w.want(0, "the cluster is ready", up...)
	if t.Failed() {
		t.FailNow()
	}
	w.kubectl(t, policyNamespaces, "create", "-f", "-")
	for _, namespace := range []string{"a", "b", "c"} {
		w.kubectl(t, "", "-n", namespace, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
	}
	var manifests strings.Builder
	for _, p := range policyPods {
		manifests.WriteString(p.manifest())
	}
	manifests.WriteString(`---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: one}, spec: {selector: {app: one}, ports: [
  {port: 80, targetPort: http}], ipFamilyPolicy: PreferDualStack}}
`)
	w.kubectl(t, manifests.String(), "create", "-f", "-")
	w.kubectl(t, "", "wait", "--for=condition=Ready", "pods", "--all", "-A", "--timeout=60s")
	for _, p := range policyPods {
		namespace, name, _ := strings.Cut(p.key, "/")
		w.learn(p.key, "{.status.podIPs[*].ip}", "-n", namespace, "get", "pod", name)
		w.ask(p.key)
	}
	w.learn("dns", "{.items[0].status.podIPs[*].ip}", "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns")
	w.learn("service", "{.spec.clusterIPs[*]}", "-n", "a", "get", "service", "one")
	return w
}

func (w *policyWorld) learn(key, path string, get ...string) {
	w.t.Helper()
	w.addrs[key] = strings.Fields(w.kubectl(w.t, "", append(get, "-o", "jsonpath="+path)...))
	if len(w.addrs[key]) == 0 {
		w.t.Fatalf("%s has no address", key)
	}
}

// ask starts the prober of a pod, which ends with the test.
func (w *policyWorld) ask(key string) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	cmd := w.command("exec", "--", "kubectl", "-n", namespace, "exec", "-i", name, "-c", "ask", "--", "bash", "-c",
		probeLoop)
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	p := &prober{in: in, answers: map[int]chan string{}}
	w.probers[key] = p
	w.t.Cleanup(func() { _, _, _ = in.Close(), cmd.Process.Kill(), cmd.Wait() })
	go p.read(out)
}

func (p *prober) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var id int
		_, _ = fmt.Sscan(lines.Text(), &id) // no number is the number of no question
		_, answer, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		ch := p.answers[id]
		delete(p.answers, id)
		p.mu.Unlock()
		if ch != nil {
			ch <- answer
		}
	}
}

func (p *prober) probe(kind, host, port string) string {
	ch := make(chan string, 1)
	p.mu.Lock()
	p.next++
	id := p.next
	p.answers[id] = ch
	_, err := fmt.Fprintln(p.in, id, kind, host, port)
	p.mu.Unlock()
	if err != nil {
		return err.Error()
	}
	select {
	case answer := <-ch:
		return answer
	case <-time.After(10 * time.Second):
		return "no answer of the prober"
	}
}

// outcomes asks every question "FROM>TO:PORT" or "FROM>TO:udp PORT" once by each IP family. An
// answer is that of all families, or lists them.
func (w *policyWorld) outcomes(questions []string) map[string]string {
	var mu sync.Mutex
	all := map[string][]string{}
	var asking sync.WaitGroup
	for _, q := range questions {
		from, rest, _ := strings.Cut(q, ">")
		to, port, _ := strings.Cut(rest, ":")
		kind := "tcp"
		if number, ok := strings.CutSuffix(port, "/udp"); ok {
			kind, port = "udp", number
		}
		for _, addr := range w.addrs[to] {
			if kind == "tcp" && strings.Contains(addr, ":") {
				addr = "[" + addr + "]"
			}
			asking.Go(func() {
				answer := w.probers[from].probe(kind, addr, port)
				mu.Lock()
				defer mu.Unlock()
				all[q] = append(all[q], answer)
			})
		}
	}
	asking.Wait()
	one := map[string]string{}
	for q, answers := range all {
		slices.Sort(answers)
		one[q] = strings.Join(slices.Compact(answers), " and ")
	}
	return one
}

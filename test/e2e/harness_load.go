// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// load is `nettool load` in a pod: clients that ask at a steady rate, never twice for one answer.
type load struct {
	process *Process
	stdin   *os.File
}

// sample is one request of a load.
type sample struct {
	at     time.Time // of its end
	url    string
	ok     bool
	took   time.Duration
	reason string // why it failed
}

// loadSummary is what a load counted.
type loadSummary struct {
	OK, Failed, Dialled int
	IdleBroke           int `json:"idle_broke"` // idle connections that ended with a reset; no request was lost on them
	Slowest             time.Duration
}

// startLoad starts it in a pod that has nettool, and returns when it asks.
func (c *Cluster) startLoad(t testing.TB, pod *corev1.Pod, args ...string) *load {
	t.Helper()
	read, write, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _ = write.Close() })
	p := c.StartInput(t, "load", read,
		append([]string{"kubectl", "--namespace", pod.Namespace, "exec", "-i", pod.Name, "--", "/nettool", "load"},
			args...)...)
	_ = read.Close() // the process has its own
	p.WaitOutput(t, 30*time.Second, `(?m)^loading$`)
	return &load{process: p, stdin: write}
}

// heldConn is `nettool hold` in a pod of its own: one connection to an echo endpoint that is busy
// all the time.
type heldConn struct {
	c   *Cluster
	pod *corev1.Pod
}

// holdConn opens the connection, for a time or until it breaks, and does not wait for it. See
// waitOpen.
func (c *Cluster) holdConn(t testing.TB, namespace, url string, forTime time.Duration) *heldConn {
	t.Helper()
	args := []string{"hold", "-for", forTime.String(), strings.TrimPrefix(url, "tcp://")}
	return &heldConn{c: c, pod: c.createPod(t, Pod{Namespace: namespace, Image: ImageNettool, Args: args})}
}

// echoedLines returns how many lines have come back, or an error if the connection has ended.
func (h *heldConn) echoedLines(ctx context.Context) (int, error) {
	out, err := h.c.Exec(ctx, "kubectl", "--namespace", h.pod.Namespace, "logs", h.pod.Name)
	if err != nil {
		return 0, err
	}
	all := heldLine.FindAllStringSubmatch(out, -1)
	if strings.Contains(out, "nettool hold:") || len(all) == 0 {
		return 0, fmt.Errorf("the long connection does not stand: %s", out)
	}
	return strconv.Atoi(all[len(all)-1][1])
}

var heldLine = regexp.MustCompile(`(?m)^held for (\d+) lines$`)

// waitOpen waits until the connection is open.
func (h *heldConn) waitOpen(t testing.TB) {
	t.Helper()
	h.c.Eventually(t, podTimeout, "a long connection", func(ctx context.Context) error {
		_, err := h.echoedLines(ctx)
		return err
	})
}

// waitEnd waits for the connection's end and returns when that was, and what it printed last.
func (h *heldConn) waitEnd(ctx context.Context) (at time.Time, last string, err error) {
	for {
		if err := h.c.Client.Get(ctx, client.ObjectKeyFromObject(h.pod), h.pod); err != nil {
			return at, "", err
		}
		if s := h.pod.Status.ContainerStatuses; len(s) == 1 && s[0].State.Terminated != nil {
			out, err := h.c.Exec(ctx, "kubectl", "--namespace", h.pod.Namespace, "logs", h.pod.Name, "--tail=1")
			return s[0].State.Terminated.FinishedAt.Time, strings.TrimSpace(out), err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return at, "", fmt.Errorf("the long connection still stands: %w", err)
		}
	}
}

// samples are the requests that have ended so far: all with -v, else those that failed.
func (l *load) samples() []sample {
	var all []sample
	for line := range strings.Lines(l.process.Output()) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 5)
		if len(f) < 4 || f[0] != "OK" && f[0] != "FAIL" {
			continue
		}
		nanos, err := strconv.ParseInt(f[1], 10, 64)
		took, err2 := time.ParseDuration(f[3])
		if err != nil || err2 != nil {
			continue // a line that is being written
		}
		s := sample{at: time.Unix(0, nanos), url: f[2], ok: f[0] == "OK", took: took}
		if len(f) == 5 {
			s.reason = f[4]
		}
		all = append(all, s)
	}
	return all
}

// stop lets the requests under way end and returns what was counted.
func (l *load) stop(t testing.TB) loadSummary {
	t.Helper()
	_ = l.stdin.Close()
	line := l.process.WaitOutput(t, 30*time.Second, `(?m)^\{.*\}$`)[0]
	var sum loadSummary
	if err := json.Unmarshal([]byte(line), &sum); err != nil {
		t.Fatalf("reading the summary %q: %v", line, err)
	}
	return sum
}

// waitAnswers waits until every URL answers from the pod.
func (c *Cluster) waitAnswers(t testing.TB, pod *corev1.Pod, urls ...string) {
	t.Helper()
	c.Eventually(t, time.Minute, "first answers", func(ctx context.Context) error {
		args := append([]string{"/nettool", "load", "-for", "1s", "-rate", strconv.Itoa(4 * len(urls)), "-timeout",
			"5s"},
			urls...)
		out, err := c.PodExec(ctx, pod, args...)
		if err == nil && strings.Contains(out, "FAIL") {
			err = errors.New(out)
		}
		return err
	})
}

// freePort is a port of the node's loopback that nothing else in this process uses.
func freePort() string { return strconv.Itoa(firstPort - 8000 + int(product.ports.Add(1))) }

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// tally is what a load counted.
type tally struct {
	OK, Failed, Dialled int
	Slowest             time.Duration
}

// startLoad starts it in a pod that has nettool, and returns when it asks.
func (c *Cluster) startLoad(t testing.TB, pod *corev1.Pod, args ...string) *load {
	t.Helper()
	p, stdin := c.startPiped(t, "load", append([]string{"kubectl", "--namespace", pod.Namespace, "exec", "-i", pod.Name, "--", "/nettool", "load"}, args...)...)
	p.WaitOutput(t, 30*time.Second, `(?m)^loading$`)
	return &load{process: p, stdin: stdin}
}

// startPiped starts a process and returns the writing end of its stdin, which is closed after the test.
func (c *Cluster) startPiped(t testing.TB, name string, args ...string) (*Process, *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = write.Close() })
	p := c.StartInput(t, name, read, args...)
	_ = read.Close() // the process has its own
	return p, write
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
func (l *load) stop(t testing.TB) tally {
	t.Helper()
	_ = l.stdin.Close()
	line := l.process.WaitOutput(t, 30*time.Second, `(?m)^\{.*\}$`)[0]
	var sum tally
	if err := json.Unmarshal([]byte(line), &sum); err != nil {
		t.Fatalf("reading the tally %q: %v", line, err)
	}
	return sum
}

// answering waits until every URL answers from the pod.
func (c *Cluster) answering(t testing.TB, pod *corev1.Pod, urls ...string) {
	t.Helper()
	c.Eventually(t, time.Minute, "first answers", func(ctx context.Context) error {
		args := append([]string{"/nettool", "load", "-for", "1s", "-rate", strconv.Itoa(4 * len(urls)), "-timeout", "5s"}, urls...)
		out, err := c.PodExec(ctx, pod, args...)
		if err == nil && strings.Contains(out, "FAIL") {
			err = errors.New(out)
		}
		return err
	})
}

// freePort is a port of the node's loopback that nobody else of this process takes.
func freePort() string { return strconv.Itoa(firstPort - 8000 + int(product.ports.Add(1))) }

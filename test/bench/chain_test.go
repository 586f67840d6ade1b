// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// chain is three processes between client and upstream.
type chain struct {
	name  string
	parts []*process
	tcp   string // where clients connect
	http  string // likewise; "" when the chain has no http
}

// startChain starts the parts, the last one first but for ours, whose agent dials.
func startChain(b testing.TB, name, keys string, up upstreams) *chain {
	b.Helper()
	c := &chain{name: name}
	part := func(role, next string) []string {
		p := spawn(b, name, role, keys, next)
		c.parts = append(c.parts, p)
		return p.told
	}
	kind, isOurs := kinds[name]
	if !isOurs {
		c.tcp = part("forwarder", part("edge", part("agent", up.tcp)[0])[0])[0]
		return c
	}
	dir := b.TempDir()
	if name == unprivileged {
		giveAway(b, dir)
	}
	i, err := parseInstallation(part("edge", dir)[1])
	must.Succeed(b, err)
	i.TCP, i.HTTP, i.WebSocket, i.WithoutPairs = up.tcp, up.http, kind.WebSocket, kind.WithoutPairs
	if kind.Sealed {
		i.Sealed, i.Seal = true, writeSeal(b, filepath.Join(dir, "seal"))
		if name == unprivileged {
			giveAway(b, dir)
		}
	}
	agent := part("agent", i.String())
	entries := part("forwarder", strings.Join(agent[1:], " "))
	c.tcp, c.http = entries[0], entries[1]
	return c
}

// cpu returns the CPU time that the chain has used.
func (c *chain) cpu(b testing.TB) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, p := range c.parts {
		sum += p.cpu(b)
	}
	return sum
}

// busy runs f and returns how much CPU time the chain used meanwhile, and how long it took.
func (c *chain) busy(b testing.TB, f func() error) (cpu, took time.Duration) {
	b.Helper()
	before, began := c.cpu(b), time.Now()
	if err := f(); err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
	took = time.Since(began)
	return c.cpu(b) - before, took
}

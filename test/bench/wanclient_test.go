// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// wanOrder is what the client in its namespace has to measure; wanResult what it did.
type wanOrder struct {
	Addr                   string
	Count                  int // set-ups, pings
	Bulk1, Bulk16, Settled int64
}

type wanResult struct {
	SetUp, Bulk1, Bulk16, Quiet, Beside float64  // ms and MB/s
	Broken                              []string // what went wrong with each stream that broke
}

func (o wanOrder) String() string {
	b, _ := json.Marshal(o)
	return string(b)
}

// runWANClient runs the measurements of its order and prints them.
func runWANClient(_ context.Context, _ keyring, next string) (string, error) {
	var o wanOrder
	if err := json.Unmarshal([]byte(next), &o); err != nil {
		return "", err
	}
	var got wanResult
	each, err := setUps(o.Addr, o.Count, 1)
	if err != nil {
		return "", err
	}
	got.SetUp = median(each)
	for _, x := range []struct {
		streams int
		total   int64
		into    *float64
	}{{1, o.Bulk1, &got.Bulk1}, {16, o.Bulk16, &got.Bulk16}} {
		var broken []string
		*x.into, broken = bulkRate(o.Addr, x.total, x.streams)
		got.Broken = append(got.Broken, broken...)
	}
	pings, err := pingPong(o.Addr, o.Count)
	if err != nil {
		return "", err
	}
	got.Quiet = median(pings)
	_, err = runBesideBulk(o.Addr, 0, o.Settled, func() (err error) {
		pings, err = pingPong(o.Addr, o.Count)
		return err
	})
	if err != nil {
		got.Broken = append(got.Broken, err.Error())
	} else {
		got.Beside = median(pings)
	}
	b, _ := json.Marshal(got)
	return string(b), nil
}

// bulkRate moves bytes downwards over so many connections at a time. It returns MB/s, of the
// streams that got to their end, and why the others did not.
func bulkRate(addr string, total int64, streams int) (rate float64, broken []string) {
	share := total / int64(streams)
	errs := make(chan error, streams)
	began := time.Now()
	for range streams {
		go func() { errs <- exchange(addr, 0, share, make([]byte, 256<<10)) }()
	}
	for range streams {
		if err := <-errs; err != nil {
			broken = append(broken, err.Error())
		}
	}
	return float64(share*int64(streams-len(broken))) / 1e6 / time.Since(began).Seconds(), broken
}

// runWANUpstream serves what the other chains' upstream does, on all addresses.
func runWANUpstream(context.Context, keyring, string) (string, error) {
	return listenAt("0.0.0.0:0", serveUpstream)
}

// connectionsTo counts the established connections from the process' network namespace to an
// address, by its port.
func (p *process) connectionsTo(b testing.TB, addr string) int {
	b.Helper()
	_, port, err := net.SplitHostPort(addr)
	must.Succeed(b, err)
	n, err := strconv.Atoi(port)
	must.Succeed(b, err)
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.pid))
	must.Succeed(b, err)
	return countEstablished(string(table), n)
}

// countEstablished counts the established connections to a port in a table as /proc/net/tcp has it.
func countEstablished(table string, port int) (count int) {
	to := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], to) && f[3] == "01" {
			count++
		}
	}
	return count
}

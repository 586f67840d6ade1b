// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	wanDelay = 40 * time.Millisecond // one way
	wanRate  = 200e6 / 8             // bytes a second
	direct   = "direct"              // one TCP connection over the same link, without anything between
)

// wanOrder is what the client in its namespace has to measure; wanResult what it did.
type wanOrder struct {
	Addr          string
	Count         int // set-ups, pings
	Bulk1, Bulk16 int64
}

type wanResult struct{ SetUp, Bulk1, Bulk16, Quiet, Beside float64 } // ms and MB/s

// BenchmarkWAN has the agent and its upstream behind a link of 80 ms; forwarder, server and client are on its other side.
func BenchmarkWAN(b *testing.B) {
	needsLink(b, []string{"bbr"})
	l := newLink(b, wanDelay, wanRate)
	order := wanOrder{Count: 20, Bulk1: 60 << 20, Bulk16: 120 << 20}
	rounds := 3
	if *quick {
		order, rounds = wanOrder{Count: 5, Bulk1: 20 << 20, Bulk16: 40 << 20}, 1
	}
	upstream := spawnIn(b, l.far, "wan", "upstream", "", "").told[0]
	_, port, err := net.SplitHostPort(upstream)
	if err != nil {
		b.Fatal(err)
	}
	i, err := parseInstallation(spawnIn(b, l.near, ours, "edge", "", b.TempDir()+" "+nearIP+":0").told[1])
	if err != nil {
		b.Fatal(err)
	}
	i.TCP, i.HTTP = "127.0.0.1:"+port, "http://127.0.0.1:"+port
	agent := spawnIn(b, l.far, ours, "agent", "", i.String())
	entry := spawnIn(b, l.near, ours, "forwarder", "", strings.Join(agent.told[1:], " ")).told[0]

	r := &report{Machine: thisMachine(), Quick: *quick}
	for range rounds {
		for _, loss := range []float64{0, 0.01} {
			l.setLoss(loss)
			for name, addr := range map[string]string{ours: entry, direct: net.JoinHostPort(farIP, port)} {
				order.Addr = addr
				r.addWAN(b, loss, name, spawnIn(b, l.near, "wan", "client", "", order.String()).told)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	r.print(os.Stdout)
	if *out != "" {
		if err := r.save(*out); err != nil {
			b.Fatal(err)
		}
	}
	if *check != "" {
		for _, wrong := range r.check(nil) {
			b.Error(wrong)
		}
	}
}

func (o wanOrder) String() string {
	b, _ := json.Marshal(o)
	return string(b)
}

func (r *report) addWAN(b testing.TB, loss float64, name string, told []string) {
	b.Helper()
	var got wanResult
	if err := json.Unmarshal([]byte(told[0]), &got); err != nil {
		b.Fatal(err)
	}
	at := fmt.Sprintf("80 ms, %.0f %% loss: ", 100*loss)
	rtt := ms(2 * wanDelay)
	setUp, one, many := goal{}, goal{over: direct}, goal{over: direct}
	if loss == 0 {
		setUp = goal{most: rtt + 5}
	} else {
		one, many = goal{over: direct, least: 0.7}, goal{over: direct, least: 0.9}
	}
	r.add(at+"set-up to first answer, p50", "ms", setUp, name, got.SetUp)
	r.add(at+"1 stream", "MB/s", one, name, got.Bulk1)
	r.add(at+"16 streams", "MB/s", many, name, got.Bulk16)
	r.add(at+"1 KB ping-pong, p50", "ms", goal{}, name, got.Quiet)
	r.add(at+"beside 4 bulk streams, p50", "ms", goal{}, name, got.Beside)
}

// runWANClient measures and says what.
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
		began := time.Now()
		if err := bulk(o.Addr, false, x.total, x.streams); err != nil {
			return "", err
		}
		*x.into = float64(x.total) / 1e6 / time.Since(began).Seconds()
	}
	pings, err := pingPong(o.Addr, o.Count)
	if err != nil {
		return "", err
	}
	got.Quiet = median(pings)
	err = besideBulk(o.Addr, 0, 64<<20, func() (err error) {
		pings, err = pingPong(o.Addr, o.Count)
		return err
	})
	got.Beside = median(pings)
	b, _ := json.Marshal(got)
	return string(b), err
}

// runWANUpstream serves what the other chains' upstream does, on all addresses.
func runWANUpstream(context.Context, keyring, string) (string, error) {
	return listenAt("0.0.0.0:0", serveUpstream)
}

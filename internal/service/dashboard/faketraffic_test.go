// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// recordedFor is how long the fake has recorded traffic.
const recordedFor = 9 * time.Hour

// addTraffic adds recent requests: some of the shop fail.
func (f *fake) addTraffic() {
	f.busy, f.failing, f.requests = 1, 0.2, map[string][]traffic.Request{}
	for i := range 40 {
		r := traffic.Request{ID: fmt.Sprintf("rq-%d", i), At: ago(f, time.Duration(i*i)*time.Second), Method: "GET",
			Path: fmt.Sprintf("/articles/%d", 4711+i*7), Proto: "HTTP/1.1", Status: 200, BytesIn: 412, BytesOut: 18_400,
			Duration: time.Duration(7+i%9) * time.Millisecond, Caller: "shop/frontend-6d5f9", Replica: "rp-own"}
		f.requests[f.endpoints[0].ID] = append(f.requests[f.endpoints[0].ID], r)
		switch i % 8 {
		case 2:
			r.Status, r.Duration = 500, 1250*time.Millisecond
		case 3:
			r.Method, r.Path, r.Status, r.Code = "POST", "/orders", 502, account.CodeUpstreamBroken
		case 5:
			r.Status = 404
		case 6:
			r.Status, r.Caller = 499, "203.0.113.90"
		}
		f.requests[f.endpoints[3].ID] = append(f.requests[f.endpoints[3].ID], r)
		r.Method, r.Path, r.Proto, r.Status, r.Code, r.Duration = "", "", "tcp", 0, "", time.Duration(i)*time.Minute
		f.requests[f.endpoints[1].ID] = append(f.requests[f.endpoints[1].ID], r)
	}
}

func (f *fake) Rates(_ context.Context, accountID string) (map[traffic.Key]traffic.Rate, traffic.Coverage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if accountID != mine || len(f.endpoints) == 0 {
		return nil, traffic.Coverage{}
	}
	return map[traffic.Key]traffic.Rate{
		traffic.OfAccount: {PerSecond: 17.4 * f.busy, FailingPerSecond: 0.2}, traffic.OfOthers: {PerSecond: 1.7},
		traffic.Key(f.endpoints[0].ID): {PerSecond: 12.4 * f.busy}, traffic.Key(f.endpoints[1].ID): {PerSecond: 0.3},
		traffic.Key(f.endpoints[3].ID):  {PerSecond: 3, FailingPerSecond: f.failing},
		traffic.Key(f.backends[3].ID):   {PerSecond: 3},
		"ep-00000000000000000000000000": {PerSecond: 9}, // deleted since
	}, f.coverage()
}

func (f *fake) coverage() traffic.Coverage {
	return traffic.Coverage{Since: ago(f, recordedFor), Missing: []string{"rp-lost"}}
}

func (f *fake) Series(
	_ context.Context, accountID string, k traffic.Key, w traffic.Window,
) (traffic.Series, traffic.Coverage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, step := w.Steps()
	s := traffic.Series{Start: f.now.Truncate(step).Add(-time.Duration(n) * step), Step: step,
		Points: make([]traffic.Point, n)}
	if accountID != mine || k == traffic.Key(f.endpoints[6].ID) {
		return s, f.coverage()
	}
	for i := range s.Points {
		at := s.Start.Add(time.Duration(i) * step)
		if at.Before(ago(f, recordedFor)) {
			continue
		}
		tcp := k == traffic.Key(f.endpoints[1].ID)
		s.Points[i] = f.point(float64(at.Unix())/600, step.Seconds(), tcp, k != traffic.Key(f.endpoints[0].ID))
	}
	return s, f.coverage()
}

// point returns the traffic of a step at phase x, which goes up and down with some noise.
func (f *fake) point(x, seconds float64, tcp, failing bool) traffic.Point {
	noise := math.Sin(x*977) * math.Sin(x*353)
	n := uint64(max(0, (12+7*math.Sin(x)+1.2*noise)*seconds*f.busy))
	p := traffic.Point{BytesIn: n * 412, BytesOut: n * 18_400, Open: n / 40, P50: 8 * time.Millisecond,
		P95: time.Duration(30+8*noise) * time.Millisecond, P99: time.Duration(90+25*noise) * time.Millisecond}
	if tcp {
		p.Connections, p.P99 = n/50, 4*time.Minute
		return p
	}
	p.Requests, p.Status[2] = n, n-n/9-n/20
	p.Status[3], p.Status[4] = n/9, n/20
	if failing && math.Sin(x/3) > 0.8 {
		p.Status[5], p.Status[2], p.Failed = n/6, p.Status[2]-n/6, n/6
	}
	if n%31 == 0 {
		p.P50, p.P95, p.P99 = 0, 0, 0
	}
	return p
}

func (f *fake) Recent(
	_ context.Context, accountID, endpointID string, failingOnly bool, limit int,
) (found []traffic.Request, _ traffic.Coverage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests[endpointID] {
		if accountID == mine && len(found) < limit && (!failingOnly || r.Failing()) {
			found = append(found, r)
		}
	}
	return found, f.coverage()
}

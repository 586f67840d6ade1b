// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// epoch is the begin of a minute.
var epoch = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

// testRecorder is a Recorder with a clock of the test's.
type testRecorder struct {
	testing.TB
	*Recorder
	at, lastLeft time.Time
}

func newRecorder(tb testing.TB, memory int64) *testRecorder {
	tb.Helper()
	r := &testRecorder{TB: tb, at: epoch}
	r.Recorder = New(Options{MaxOwn: 10, Now: func() time.Time { return r.at }, memory: memory})
	return r
}

// pass lets steps of 10 s pass.
func (r *testRecorder) pass(steps int) {
	r.Helper()
	for range steps {
		r.at = r.at.Add(shortStep)
		r.addStep(r.at)
	}
}

// request is a finished request of a test's.
type request struct {
	account, endpoint, backend string
	method, uri                string
	status                     int
	code                       account.Code
	took                       time.Duration
	in, out                    int64
	pod                        *tunnel.PodIdentity
}

// record passes a request through the recorder. Its zero fields get usual values.
func (r *testRecorder) record(q request) {
	if q.account == "" {
		q.account = "ac-1"
	}
	if q.endpoint == "" {
		q.endpoint = "ep-1"
	}
	if q.method == "" {
		q.method = "GET"
	}
	if q.status == 0 {
		q.status = 200
	}
	u, err := url.Parse(q.uri)
	must.Succeed(r, err)
	s := &edge.RequestRecord{
		Endpoint:  &account.Endpoint{ID: q.endpoint, AccountID: q.account},
		Client:    &edge.ClientInfo{ClientIP: netip.MustParseAddr("203.0.113.9"), StatedPod: q.pod},
		StartedAt: r.at,
		Request: &http.Request{Method: q.method, RequestURI: q.uri, ProtoMajor: 1, ProtoMinor: 1,
			URL: u, Header: http.Header{"Authorization": {"Bearer planted-header"}, "Cookie": {"sid=planted-cookie"}}},
	}
	c := r.Endpoints.Start(s)
	c.Bytes.Add(q.in, q.out)
	s.Traffic.Add(q.in, q.out)
	s.Status, s.Code, s.Duration, s.BackendID = q.status, q.code, q.took, q.backend
	r.Endpoints.Finish(c, s)
	if q.backend != "" {
		r.Backends.CountFinished(q.backend, s)
	}
}

// total sums the points of a series. Open is that of the last point.
func total(s Series) (sum Point) {
	for _, p := range s.Points {
		sum.Requests += p.Requests
		sum.Connections += p.Connections
		sum.Failed += p.Failed
		sum.BytesIn += p.BytesIn
		sum.BytesOut += p.BytesOut
		sum.Open = p.Open
		for i := range p.Status {
			sum.Status[i] += p.Status[i]
		}
	}
	return sum
}

// requests returns the requests of a series of the account.
func (r *testRecorder) requests(accountID string, k Key, w Window) uint64 {
	r.Helper()
	s, _ := r.Series(r.Context(), accountID, k, w)
	return total(s).Requests
}

// Memory returns about how many bytes the recorder takes.
func (r *Recorder) Memory() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used()
}

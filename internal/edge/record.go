// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RequestRecord is one request, or one connection to a tcp endpoint, for metrics, logs and traces.
type RequestRecord struct {
	Endpoint  *account.Endpoint
	Client    *ClientInfo
	Request   *http.Request // the client's request; nil for a connection
	StartedAt time.Time

	// Meter.Start may set these.
	LiveTraffic *Traffic // counter of bytes while they are relayed; nil = none
	State       any      // the Meter's state, for Finish

	// These are set when Meter.Finish is called.
	Duration  time.Duration
	Status    int          // 499 for a client that left before the answer; 0 for a connection
	Code      account.Code // why no upstream answered or no connection was made; "" = success, or the client left
	BackendID string       // backend of the leaf that served; "" = an agent of the endpoint, or none
	Traffic   Traffic      // bytes of bodies; of connections and upgraded connections all bytes
}

// Traffic counts bytes. It is safe for concurrent use.
type Traffic struct{ in, out atomic.Int64 }

// Totals returns the bytes from and to clients.
func (t *Traffic) Totals() (in, out int64) { return t.in.Load(), t.out.Load() }

// Add adds bytes from and to clients. Negative numbers are ignored.
func (t *Traffic) Add(in, out int64) {
	if in > 0 {
		t.in.Add(in)
	}
	if out > 0 {
		t.out.Add(out)
	}
}

// addBytes adds bytes from and to the client; r may be nil.
func (r *RequestRecord) addBytes(in, out int) {
	if r == nil {
		return
	}
	r.Traffic.Add(int64(in), int64(out))
	if r.LiveTraffic != nil {
		r.LiveTraffic.Add(int64(in), int64(out))
	}
}

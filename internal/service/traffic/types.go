// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Key names what a series is of: the id of an endpoint or backend, OfAccount or OfOthers.
type Key string

// Keys of what is summed for an account.
const (
	OfAccount Key = ""       // all that the account's endpoints carried
	OfOthers  Key = "others" // sum of the endpoints without a series of their own
)

// Window is how far back a series goes, and in which steps.
type Window int

// The windows that there are.
const (
	Hour Window = iota // 360 steps of 10 s
	Day                // 1,440 steps of 1 min
)

// Steps returns how many steps the window has, and how long one is.
func (w Window) Steps() (n int, step time.Duration) {
	if w == Day {
		return 24 * 60, time.Minute
	}
	return 360, 10 * time.Second
}

// Series is the traffic of a window. All steps are complete: the last one has ended at most a step
// and two seconds ago.
type Series struct {
	Start  time.Time // start of the first step; a multiple of Step since the Unix epoch
	Step   time.Duration
	Points []Point // one for each step, the oldest first
}

// Point is the traffic of one step: counts, not rates.
type Point struct {
	Requests, Connections uint64    // what has ended: HTTP requests, and connections to tcp endpoints
	Status                [6]uint64 // Requests by class: [2] is 2xx; [0]: the client left before the answer
	Failed                uint64    // failed Requests and Connections; see Request.Failing
	BytesIn, BytesOut     uint64    // from clients, to clients; when they were moved
	Open                  uint64    // requests and connections under way at the end of the step
	// Quantiles of the durations of Requests and Connections, 0 without any: from 0.25 ms to 36 min,
	// and at most a quarter off the true value.
	P50, P95, P99 time.Duration
}

// Coverage is what a result covers.
type Coverage struct {
	// Since is when the recording began: there is no earlier data, and points of before are zero.
	// Zero = nothing is recorded.
	Since time.Time
	// Complete is since when all replicas that have answered have data, and none has left; Since,
	// where one server is alone. In between, the traffic of those that began later, and of those that
	// have left, is missing.
	Complete time.Time
	Missing  []string // ids of the replicas that did not answer, whose traffic is not in the result
	// Summed reports that the object has no series now, because others have more traffic: its own is
	// in OfOthers and OfAccount.
	Summed bool
}

// Rate is what passed in the last minute, per second.
type Rate struct {
	PerSecond        float64 // requests and connections
	FailingPerSecond float64 // those of them that failed
}

// Request is one finished request, or one finished connection to a tcp endpoint, without anything
// that it carried: no header, no query, no body.
type Request struct {
	ID                string // unique among those of all replicas
	At                time.Time
	Method            string // "" = a connection
	Path              string // without query, as sent; a long one ends with "…"
	Proto             string // "HTTP/1.1", "HTTP/2.0", "tcp"
	Status            int    // 499: the client left before the answer; 0: a connection
	Code              account.Code
	Duration          time.Duration
	BytesIn, BytesOut uint64
	Caller            string // the pod, as namespace/name, else the address; "" = unknown
	Replica           string // "" where one server is alone
}

// Failing reports whether the service or the upstream failed, in contrast to a request that the
// service refused for what its client or a policy did.
func (r *Request) Failing() bool { return failing(r.Code, r.Status) }

// LoginFailure is a login that failed. Equal failures are one, with a Count.
type LoginFailure struct {
	At                      time.Time // when the last one failed
	Count                   int
	EndpointID, EndpointURL string
	AuthID                  string     // the login action's
	Provider                string     // its name, or its issuer
	Client                  netip.Addr // the last one's address
	// Person is what the provider calls whom it has confirmed, with their id there; "" before that.
	Person string
	// Step is where the login failed: "login" (before the browser was sent to the provider),
	// "callback", "acs", "finish" (after it came back), or "session" (a request with a session).
	Step   string
	Code   account.Code
	Shown  string // the sentence that the person was shown
	Reason string // for the owner, in the provider's own words where it gave any; without tokens
	// Replica is the one that the person was connected to; "" where one server is alone.
	Replica string
}

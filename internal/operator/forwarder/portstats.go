// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
)

// Failure is why a connection of a port last failed.
type Failure struct {
	At time.Time `json:"at"`
	// the label of fairlead_forwarder_errors_total; upstream_broken and agent_silent are of http
	// requests
	Reason string `json:"reason"`
	// Message is the sentence that an HTTP client was sent.
	Message string `json:"message"`
}

// portStats counts the connections of one listener: for the metrics of its hostname and for
// /status. All methods are safe for concurrent use.
type portStats struct {
	*hostStats
	accepted, serving atomic.Int64
	success           atomic.Int64 // Unix nanoseconds; 0: none
	failure           atomic.Pointer[Failure]
}

func (p *portStats) begin() {
	p.accepted.Add(1)
	p.serving.Add(1)
	p.hostStats.begin()
}

func (p *portStats) end() {
	p.serving.Add(-1)
	p.hostStats.end()
}

// recordSuccess records that the edge opened a stream.
func (p *portStats) recordSuccess(at time.Time) { p.success.Store(at.UnixNano()) }

// recordFailure counts a connection that failed and records the cause, unless the client itself
// aborted.
func (p *portStats) recordFailure(label reason, message string) {
	p.countFailure(label)
	if label != reasonClient {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: string(label), Message: message})
	}
}

// recordRequestResult records what the edge reports about an http request: the code of the error
// page that it sent, or "" when the upstream answered. The stream was opened, so no metric counts
// the connection as failed.
func (p *portStats) recordRequestResult(code account.Code, url string) {
	if code == "" {
		p.recordSuccess(time.Now())
	} else if c, ok := trafficerror.OfPage(code); ok {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: c.Reason, Message: c.Message(url)})
	}
}

// fill sets the counters of a listener's status.
func (p *portStats) fill(st *ListenerStatus) {
	st.Connections, st.Active, st.LastFailure = p.accepted.Load(), p.serving.Load(), p.failure.Load()
	if at := p.success.Load(); at != 0 {
		t := time.Unix(0, at).UTC()
		st.LastSuccess = &t
	}
}

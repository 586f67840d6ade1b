// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Failure is why a connection last did not get through.
type Failure struct {
	At time.Time `json:"at"`
	// as the label of fairlead_forwarder_errors_total; upstream_broken and agent_silent are of http
	// requests
	Reason string `json:"reason"`
	// Message is the sentence that the client was told, or would have been.
	Message string `json:"message"`
}

// portStats are what the connections of one listener met: for the metrics of its hostname, and for
// /status. All methods are safe for concurrent use.
type portStats struct {
	*hostStats
	accepted, serving atomic.Int64
	success           atomic.Int64 // in Unix nanoseconds; 0: none
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

// recordSuccess notes that the edge has opened a stream.
func (p *portStats) recordSuccess(at time.Time) { p.success.Store(at.UnixNano()) }

// recordFailure counts a connection that did not get through, and remembers why, unless the client itself
// broke off.
func (p *portStats) recordFailure(why reason, message string) {
	p.countFailure(why)
	if why != reasonClient {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: string(why), Message: message})
	}
}

// recordRequestResult notes what the edge says of an http request: the code of the page with which it answered
// itself, or none when the upstream answers again. The connection had been opened, so no metric
// counts it as failed.
func (p *portStats) recordRequestResult(code account.Code, url string) {
	var failed *failure
	switch code {
	case "":
		p.recordSuccess(time.Now())
		return
	case account.CodeEndpointOffline:
		failed = &failure{reason: reasonOffline, msg: fmt.Sprintf("The endpoint %s is offline: its agent is not connected.",
			url)}
	case account.CodeUpstreamUnreachable:
		failed = &failure{reason: reasonUpstream, msg: fmt.Sprintf("The agent of %s cannot reach its upstream.", url)}
	case account.CodeUpstreamBroken:
		failed = &failure{reason: reasonUpstreamBroken,
			msg: fmt.Sprintf("The upstream of %s broke off before it had answered, or its answer was not HTTP.", url)}
	case account.CodeAgentSilent:
		failed = &failure{reason: reasonAgentSilent, msg: fmt.Sprintf("The agent of %s did not answer in time.", url)}
	default:
		return
	}
	p.failure.Store(&Failure{At: time.Now().UTC(), Reason: string(failed.reason), Message: failed.msg})
}

// fill puts the counters into a listener's status.
func (p *portStats) fill(st *ListenerStatus) {
	st.Connections, st.Active, st.LastFailure = p.accepted.Load(), p.serving.Load(), p.failure.Load()
	if at := p.success.Load(); at != 0 {
		t := time.Unix(0, at).UTC()
		st.LastSuccess = &t
	}
}

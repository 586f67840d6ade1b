// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"sync/atomic"
	"time"
)

// Failure is why a connection last did not get through.
type Failure struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"` // as the label of fairlead_forwarder_errors_total
	// Message is the sentence that the client was told, or would have been.
	Message string `json:"message"`
}

// portStats are what the connections of one listener met: for the metrics of its hostname, and for /status. All methods are safe for concurrent use.
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

// opened notes that the edge has opened a stream.
func (p *portStats) opened() { p.success.Store(time.Now().UnixNano()) }

// failed counts a connection that did not get through, and remembers why, unless the client itself broke off.
func (p *portStats) failed(why reason, message string) {
	p.fail(why)
	if why != reasonClient {
		p.failure.Store(&Failure{At: time.Now().UTC(), Reason: string(why), Message: message})
	}
}

// into puts the counters into a listener's status.
func (p *portStats) into(st *ListenerStatus) {
	st.Connections, st.Active, st.LastFailure = p.accepted.Load(), p.serving.Load(), p.failure.Load()
	if at := p.success.Load(); at != 0 {
		t := time.Unix(0, at).UTC()
		st.LastSuccess = &t
	}
}

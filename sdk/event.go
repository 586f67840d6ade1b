// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import "time"

// Event is [Online], [Offline], [Request], [UpstreamDown] or [UpstreamUp]; later versions may have
// more. Texts may come from the network and may hold control characters.
type Event interface{ event() }

// Online reports that the service serves the endpoint: at the start, and after each reconnect.
type Online struct {
	URL, EndpointID, SessionID string
	Reconnected                bool // false the first time
}

// Offline reports that the service cannot be reached, or that it stops and another one takes over;
// once for each cause. The endpoint is retried until Online follows.
type Offline struct {
	Cause   string // a sentence without a full stop
	Code    string // the tunnel protocol's code, such as DRAINING; "" = the service gave none
	RetryIn time.Duration
}

// Request is a request to an http or https endpoint that was served, as the service reports it. When
// there are many, some are left out.
type Request struct {
	Method, Path string
	Status       int
	Duration     time.Duration
}

// UpstreamDown reports that the upstream of [Forward] cannot be reached, once until UpstreamUp.
type UpstreamDown struct{ Cause string }

// UpstreamUp reports that the upstream can be reached again.
type UpstreamUp struct{}

func (Online) event()       {}
func (Offline) event()      {}
func (Request) event()      {}
func (UpstreamDown) event() {}
func (UpstreamUp) event()   {}

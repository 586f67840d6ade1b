// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration_test

import "github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"

// endpoints are registration.Endpoints whose state the test sets.
type endpoints struct {
	feed     endpointsync.FeedStatus
	removals endpointsync.Removals
	requests int // lists that were requested
}

func (e *endpoints) Status() endpointsync.FeedStatus { return e.feed }
func (e *endpoints) Removals() endpointsync.Removals { return e.removals }
func (e *endpoints) RequestList()                    { e.requests++ }

// forwarders are registration.Forwarders whose state the test sets.
type forwarders struct {
	known, legsKnown bool
	problem, legs    string
}

func (f *forwarders) EdgeStatus() (bool, string) { return f.known, f.problem }
func (f *forwarders) Legs() (bool, string)       { return f.legsKnown, f.legs }

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http/httptrace"
	"sync/atomic"
)

// idleCheck lets the next user of a pooled connection wait until nothing is left of the one before.
// net/http puts an HTTP/1 connection back into its pool before it looks for bytes beyond the
// answer: then it reads again where there are none, and closes the connection otherwise.
type idleCheck struct {
	state   atomic.Int32
	entered chan struct{} // entered receives a value when an awaited read or close begins.
}

const (
	notReading int32 = iota
	awaited
	reading
	closed
)

func newIdleCheck() *idleCheck { return &idleCheck{entered: make(chan struct{}, 1)} }

// enter sets the state. A closed connection stays so, also where the transport reads from it once
// more: nothing would end the wait for a further read.
func (c *idleCheck) enter(state int32) {
	last := c.state.Load()
	for last != closed && !c.state.CompareAndSwap(last, state) {
		last = c.state.Load()
	}
	if last == awaited {
		c.entered <- struct{}{}
	}
}

func (c *idleCheck) endRead() { c.state.CompareAndSwap(reading, notReading) }

// awaitIdle returns once the transport reads from the connection again or has closed it.
func (c *idleCheck) awaitIdle() {
	if c.state.CompareAndSwap(notReading, awaited) {
		<-c.entered
	}
}

// awaitIdle waits until nothing is left of the request before on a connection that is used again.
func awaitIdle(info httptrace.GotConnInfo) {
	if c, ok := info.Conn.(interface{ awaitIdle() }); ok && info.Reused {
		c.awaitIdle()
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"net/http"
	"time"
)

// LimitBody limits the size of the request's body and the time until it has arrived. The caller
// calls done when the body is read.
func (c *Call) LimitBody(maxBytes int64, timeout time.Duration) (done func()) {
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(timeout)) // a ResponseWriter of a test has no deadlines
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, maxBytes)
	return func() { _ = control.SetReadDeadline(time.Time{}) }
}

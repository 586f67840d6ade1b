// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// CarrierWebSocket is the name of the carrier that passes what native connections do not: balancers
// and inspecting proxies that end TLS and know HTTP/1.1 only. The native one's is ALPN.
const CarrierWebSocket = "websocket"

// Carrier is how the connections of a session carry it.
type Carrier struct {
	Name   string // ALPN or CarrierWebSocket
	Reason string // Reason is why it is not native, on the client's side.
}

// webSocketTime is how long a client's sessions begin over WebSockets before a new one tries a
// native connection again.
const webSocketTime = 10 * time.Minute

// nativeRetry is how long a session over WebSockets waits, at most, before it tries a native connection
// for the first time; then for twice as long, up to webSocketTime.
const nativeRetry = 20 * time.Second

// Native connections in a row that are cut without a clear sign of the cause, after which a WebSocket is
// tried. A server that stops, or that too many clients dial, also cuts connections: where one has
// carried a session before, it takes more.
const (
	cutsAtFirst = 2
	cutsAfter   = 8
)

// carrierChoice remembers what the client's connections are carried by. It is safe for concurrent
// use.
type carrierChoice struct {
	mu     sync.Mutex
	reason string    // reason for the use of WebSockets; "" = native
	since  time.Time // time of that choice
	cuts   int       // native connections in a row that ended without a word about the cause
	passes bool      // a native connection has carried a session on the present way to the server
}

// webSocketReason returns why connections are WebSockets, or "".
func (c *carrierChoice) webSocketReason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// beginSession lets a native connection be tried when the choice of WebSockets is old.
func (c *carrierChoice) beginSession() (reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) >= webSocketTime {
		c.reason = ""
	}
	return c.reason
}

func (c *carrierChoice) useWebSocket(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason, c.since = reason, time.Now()
}

// useNative records that a native connection has passed.
func (c *carrierChoice) useNative() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason, c.cuts, c.passes = "", 0, true
}

// forget begins anew, as on another way to the server.
func (c *carrierChoice) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason, c.cuts, c.passes = "", 0, false
}

// nativeBegan takes the error, or nil, with which a native connection began. It returns why a
// WebSocket may succeed instead, or "".
func (c *carrierChoice) nativeBegan(err error) (reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var cut *cutError
	if !errors.As(err, &cut) {
		c.cuts, c.passes = 0, c.passes || err == nil
		return ""
	}
	enough := cutsAtFirst
	if c.passes {
		enough = cutsAfter
	}
	if c.cuts++; c.cuts < enough && !cut.clear {
		return ""
	}
	return cut.reason
}

// cutError is the error of a native connection that something on the way may not let pass: TCP was
// established, and there was no welcome, no refusal and no certificate that is not trusted.
type cutError struct {
	reason string
	clear  bool // clear is set for a peer that has shown that it does not know the protocol.
	err    error
}

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// asCut returns err as a *cutError if something on the way may have caused it. ctx is the client's.
func asCut(ctx context.Context, err error) error {
	text, op, cut := err.Error(), (*net.OpError)(nil), &cutError{err: err}
	switch {
	case ctx.Err() != nil:
		return err
	case strings.Contains(text, "no application protocol"): // crypto/tls has no types for alerts
		cut.reason, cut.clear = "the TLS protocol "+ALPN+" is refused on the way", true
	case strings.Contains(text, "protocol version"):
		cut.reason, cut.clear = "TLS 1.3 is refused on the way", true
	case errors.Is(err, context.DeadlineExceeded):
		cut.reason = "native connections get no answer"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errHungUp), errors.As(err, &op):
		cut.reason = "native connections are cut"
	default:
		return err
	}
	return cut
}

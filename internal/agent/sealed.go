// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// sealTimeout bounds the handshake and the header of a sealed connection.
const sealTimeout = 5 * time.Second

// codeUpstream refuses a sealed connection whose upstream cannot be reached.
const codeUpstream = "UPSTREAM"

// serveSealed accepts the stream, so that the other end can begin the seal, and then decides by what
// is inside.
func (v *streamServer) serveSealed(ctx context.Context, e *endpoint, s *spec, st *tunnel.Stream, start time.Time) {
	if err := st.Accept(); err != nil {
		return
	}
	h := st.Header()
	limit, cancel := context.WithTimeout(ctx, min(sealTimeout, cmp.Or(h.Deadline, sealTimeout)))
	in, err := v.unsealed.accept(limit, s.Seal, st)
	cancel()
	if err != nil {
		v.unsealed.warn(v.opt.Logger, s.info.DisplayName(), err)
		return
	}
	if in.Header.URL != s.URL {
		_ = in.Refuse(sealed.CodeWrongURL, "this stream leads to "+s.URL.String()+", not to "+in.Header.URL.String())
		return
	}
	v.relayToUpstream(ctx, e, s, sealedCaller{in}, start)
}

// maxUnsealed bounds the connections that are being sealed at a time: a hostile service can open many.
const maxUnsealed = 512

// unsealed are connections that are not sealed yet, and warnings about those that never were. It is
// safe for concurrent use.
type unsealed struct {
	accepting, failures atomic.Int64
	warnings            rate.Sometimes
}

func newUnsealed() *unsealed { return &unsealed{warnings: rate.Sometimes{Interval: time.Second}} }

// accept is Identity.Accept for at most maxUnsealed callers at a time.
func (u *unsealed) accept(ctx context.Context, by *sealed.Identity, st sealed.Below) (*sealed.Incoming, error) {
	defer u.accepting.Add(-1)
	if u.accepting.Add(1) > maxUnsealed {
		_ = st.Abort()
		return nil, errors.New("too many callers seal their connections at the same time")
	}
	return by.Accept(ctx, st)
}

// warn logs a failure, at most once a second.
func (u *unsealed) warn(log *slog.Logger, endpoint string, err error) {
	u.failures.Add(1)
	u.warnings.Do(func() {
		log.Warn("A caller could not seal its connection", "endpoint", endpoint, "error", err, "failures",
			u.failures.Swap(0))
	})
}

// sealedCaller is a caller behind a seal.
type sealedCaller struct{ in *sealed.Incoming }

func (c sealedCaller) header() tunnel.OpenHeader {
	h := c.in.Header
	return tunnel.OpenHeader{Scheme: h.URL.Scheme, Host: h.URL.Host, Port: h.URL.Port, ClientAddr: h.ClientAddr,
		TraceID: h.TraceID, Deadline: h.Deadline, Pod: h.Pod}
}

func (c sealedCaller) accept(Connection) (relay.HalfCloser, func(error), error) {
	conn, err := c.in.Open()
	return conn, func(error) {}, err
}

func (c sealedCaller) refuse(to Connection, _ time.Time) { _ = c.in.Refuse(codeUpstream, to.Cause) }

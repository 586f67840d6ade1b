// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"time"

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
	in, err := s.Seal.Accept(limit, st, h.EndpointID)
	cancel()
	if err != nil {
		v.opt.Logger.Warn("A caller could not seal its connection", "endpoint", s.info.DisplayName(), "error", err)
		v.opt.Observer.Observe(Connection{EndpointInfo: s.info, Ended: true, Refused: true, Duration: time.Since(start),
			Cause: err.Error()})
		return
	}
	if sealed.FormatKey(s.Seal.Key()) != s.info.SealKey {
		v.endpoints.checkSeal(e) // the key has changed since the last look
	}
	if in.Header.URL != s.URL {
		_ = in.Refuse(sealed.CodeWrongURL, "this stream leads to "+s.URL.String()+", not to "+in.Header.URL.String())
		return
	}
	v.relayToUpstream(ctx, e, s, sealedCaller{in}, start)
}

// sealedCaller is a caller behind a seal.
type sealedCaller struct{ in *sealed.Incoming }

func (c sealedCaller) header() tunnel.OpenHeader {
	h := c.in.Header
	return tunnel.OpenHeader{Scheme: h.URL.Scheme, Host: h.URL.Host, Port: h.URL.Port, ClientAddr: h.ClientAddr,
		TraceID: h.TraceID, Deadline: h.Deadline, Pod: h.Pod}
}

func (c sealedCaller) name() string { return c.in.Caller }

func (c sealedCaller) accept(Connection) (relay.HalfCloser, func(error), error) {
	conn, err := c.in.Open()
	return conn, func(error) {}, err
}

func (c sealedCaller) refuse(to Connection, _ time.Time) { _ = c.in.Refuse(codeUpstream, to.Cause) }

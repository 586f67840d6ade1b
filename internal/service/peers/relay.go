// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// openTimeout bounds the wait for an agent's answer to a stream whose header has no deadline.
const openTimeout = 30 * time.Second

// wireID is the endpoint id that headers and request lines have between replicas: the account, and
// the id of the endpoint or labelled tunnel.
func wireID(accountID, id string) string { return accountID + "/" + id }

// relayHandler serves the tunnel sessions of peers, whose certificates have been verified.
type relayHandler struct{ peers *Peers }

var _ tunnel.Handler = relayHandler{}

// callerKey is the key of the caller's id in the context of a connection.
type callerKey struct{}

func callerOf(ctx context.Context) string {
	id, _ := ctx.Value(callerKey{}).(string)
	return id
}

// Hello admits a peer.
func (h relayHandler) Hello(ctx context.Context, hello tunnel.Hello, _ net.Addr) (tunnel.Welcome, error) {
	if hello.Role != tunnel.RoleForwarder {
		return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "only replicas connect here"}
	}
	return tunnel.Welcome{SessionID: account.NewID(account.PrefixTunnelSession, time.Now())}, ctx.Err()
}

// Join refuses a connection of a session that is over.
func (h relayHandler) Join(context.Context, tunnel.Hello, net.Addr) (tunnel.Welcome, error) {
	return tunnel.Welcome{}, &tunnel.Error{Code: tunnel.CodeUnknownSession,
		Msg: "the session has ended: begin a new one"}
}

// Up does nothing: the connections are counted by the listener.
func (h relayHandler) Up(*tunnel.Session) {}

// Down does nothing.
func (h relayHandler) Down(*tunnel.Session, error) {}

// OnResponsiveness implements tunnel.Handler.
func (h relayHandler) OnResponsiveness(*tunnel.Session) {}

var errNoBinds = &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "replicas bind nothing"}

// Bind refuses.
func (h relayHandler) Bind(context.Context, *tunnel.Session, tunnel.Bind) (tunnel.Bound, error) {
	return tunnel.Bound{}, errNoBinds
}

// Unbind refuses.
func (h relayHandler) Unbind(context.Context, *tunnel.Session, string) error { return errNoBinds }

// Renew refuses: replicas have certificates instead of tokens.
func (h relayHandler) Renew(context.Context, *tunnel.Session, string) (time.Time, error) {
	return time.Time{}, &tunnel.Error{Code: tunnel.CodeForbidden, Msg: "replicas have no tokens"}
}

// Stream relays a peer's stream to an agent of this replica. It is accepted when the agent has
// accepted it, and refused with the agent's refusal.
func (h relayHandler) Stream(ctx context.Context, _ *tunnel.Session, st *tunnel.Stream) {
	p := h.peers
	header := st.Header()
	accountID, id, ok := strings.Cut(header.EndpointID, "/")
	if !ok {
		_ = st.Refuse(tunnel.RefusedHeader)
		return
	}
	relayID := header.RelayID
	header.EndpointID, header.RelayID, header.BytesFollow = id, 0, st.Buffered() > 0
	wait := header.Deadline
	if wait <= 0 {
		wait = openTimeout
	}
	opening, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	agent, release, err := p.opt.Local.OpenMember(opening, accountID, id, header)
	if err != nil {
		p.log.Debug("a relayed stream was not opened", "endpoint", id, "err", err)
		_ = st.Refuse(refusalOf(err))
		return
	}
	defer release()
	p.countRelayed(callerOf(ctx))
	defer p.relayed.add(callerOf(ctx), relayID, agent)()
	to := &relayedStream{Stream: agent, from: st, opening: opening}
	if _, err := relay.Join(ctx, st, to, relay.Options{}); err != nil {
		p.log.Debug("a relayed stream broke", "endpoint", id, "err", err)
	}
}

func (h relayHandler) OnRequestLine(_ *tunnel.Session, line tunnel.RequestLine) {
	if accountID, id, ok := strings.Cut(line.EndpointID, "/"); ok {
		line.EndpointID = id
		h.peers.opt.Local.ReportLine(accountID, line)
	}
}

// refusalOf returns the code that tells the replica which relays why a stream was not opened.
func refusalOf(err error) tunnel.RefuseCode {
	var refused *tunnel.RefusedError
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive):
		return tunnel.RefusedUnresponsive
	case errors.As(err, &refused):
		return refused.Code
	}
	return trafficerror.Of(err).Refusal
}

// relayedStream is the stream to the agent. Writes are sent at once; the first read waits for the
// agent's answer and passes it on.
type relayedStream struct {
	*tunnel.Stream
	from    *tunnel.Stream
	opening context.Context // ends when the agent must have answered

	once sync.Once
	err  error
}

// waitOpened waits for the agent's answer; every call returns the same.
func (s *relayedStream) waitOpened() error {
	s.once.Do(func() {
		ctx, cut := context.WithCancelCause(s.opening)
		defer cut(nil)
		stop := s.OnUnresponsive(func() { cut(tunnel.ErrUnresponsive) })
		err := s.WaitOpened(ctx)
		stop()
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if s.err = err; err == nil {
			s.err = s.from.Accept()
			return
		}
		if code, refused := unopenedCode(err); refused {
			_ = s.from.Refuse(code)
		}
	})
	return s.err
}

// unopenedCode returns the refusal of a stream that the agent has not opened. An abort of the agent
// is none: it may have used what was sent.
func unopenedCode(err error) (code tunnel.RefuseCode, refused bool) {
	switch {
	case errors.Is(err, tunnel.ErrUnresponsive), errors.As(err, new(*tunnel.RefusedError)):
		return refusalOf(err), true
	case errors.Is(err, context.DeadlineExceeded):
		return tunnel.RefusedUpstream, true
	case errors.As(err, new(*tunnel.ResetError)), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, false
	}
	return tunnel.RefusedOffline, true // its connection was lost
}

// Next is Read without a copy.
func (s *relayedStream) Next() ([]byte, error) {
	if err := s.waitOpened(); err != nil {
		return nil, fmt.Errorf("waiting for the agent: %w", err)
	}
	return s.Stream.Next()
}

// Read waits for the agent's answer first.
func (s *relayedStream) Read(b []byte) (int, error) {
	if err := s.waitOpened(); err != nil {
		return 0, fmt.Errorf("waiting for the agent: %w", err)
	}
	return s.Stream.Read(b)
}

// Write does not wait. When it fails because the agent has refused the stream, the refusal is
// passed on before the stream is aborted.
func (s *relayedStream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	if err != nil {
		if refusal := s.waitOpened(); refusal != nil {
			err = refusal
		}
	}
	return n, err
}

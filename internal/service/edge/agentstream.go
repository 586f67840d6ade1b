// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// idleCloseTimeout is how long a stream that is closed while idle waits for the agent's side to
// end.
const idleCloseTimeout = 2 * time.Second

// agentStream is the edge's end of a stream to an agent. Writes are sent at once; the first read
// waits for the agent's answer, at most until the deadline that the agent was given.
type agentStream struct {
	*tunnel.Stream
	upstreams *upstreams
	deadline  time.Time

	answerOnce sync.Once
	answerErr  error
	inUse      atomic.Int32 // requests that use it; counted by agentPool only
	closeOnce  sync.Once
	flusher    flusher // used by agentPool only

	mu       sync.Mutex
	answered bool
	body     *replayReader // body gets the agent's answer; nil = none waits for it.
}

var _ targetConn = (*agentStream)(nil)

// waitOpened waits for the agent's answer; every call returns the same.
func (s *agentStream) waitOpened() error {
	s.answerOnce.Do(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), s.deadline, trafficerror.ErrAgentTimeout)
		defer cancel()
		ctx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		stop := s.Stream.OnUnresponsive(func() { cut(tunnel.ErrUnresponsive) })
		err := s.Stream.WaitOpened(ctx)
		stop()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			_ = s.Stream.Reset(tunnel.Aborted)
		case isConnectionLost(err): // before the agent had acted
			err = &account.Error{Code: account.CodeEndpointOffline, Msg: "the agent went away", Cause: err}
		}
		s.upstreams.meter.CountStream(trafficerror.StreamOutcome(err))
		s.answerErr = err
		s.mu.Lock()
		body := s.body
		s.answered, s.body = true, nil
		s.mu.Unlock()
		if body != nil {
			body.answered(err)
		}
	})
	return s.answerErr
}

// attachBody passes the agent's answer to a request's body, now or once it arrives.
func (s *agentStream) attachBody(body *replayReader) {
	s.mu.Lock()
	answered := s.answered
	if !answered {
		body.awaitAnswer()
		s.body = body
	}
	s.mu.Unlock()
	if answered {
		body.answered(s.answerErr)
	}
}

// isConnectionLost reports whether a stream ended with its tunnel connection, and not by the agent.
func isConnectionLost(err error) bool {
	var refused *tunnel.RefusedError
	var reset *tunnel.ResetError
	return !errors.As(err, &refused) && !errors.As(err, &reset) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// Read waits for the agent's answer first.
func (s *agentStream) Read(p []byte) (int, error) {
	if err := s.waitOpened(); err != nil {
		return 0, err
	}
	s.flusher.flush()
	n, err := s.Stream.Read(p)
	s.upstreams.meter.CountBytes(0, n)
	return n, err
}

// Next is Read without a copy.
func (s *agentStream) Next() ([]byte, error) {
	if err := s.waitOpened(); err != nil {
		return nil, err
	}
	p, err := s.Stream.Next()
	s.upstreams.meter.CountBytes(0, len(p))
	return p, err
}

// Write does not wait. When it fails because the agent refused the stream, it returns the refusal.
func (s *agentStream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	s.upstreams.meter.CountBytes(n, 0)
	if err != nil {
		if refusal := s.waitOpened(); refusal != nil {
			err = refusal
		}
	}
	return n, err
}

// closeIdle ends a stream between two requests, so that the agent's upstream sees an ordinary end
// of connection and no abort. It does not block: while a transport closes an idle stream, its other
// requests wait.
func (s *agentStream) closeIdle() {
	started := s.upstreams.background.Start(func() { _ = s.CloseGracefully(idleCloseTimeout) })
	if !started {
		_ = s.Stream.Close()
	}
}

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
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// errSilent says that the agent, which responds, did not answer an opened stream in time.
var errSilent = errors.New("the agent did not answer in time")

// goodbye is how long a stream that is closed while idle waits for the agent's side to end too.
const goodbye = 2 * time.Second

// upstream is the edge's end of a stream to an agent. Writes go out at once; the first read waits
// for the agent's answer, at most until the deadline that the agent was told.
type upstream struct {
	*tunnel.Stream
	edge     *Edge
	deadline time.Time

	answer    sync.Once
	answerErr error
	busy      atomic.Int32 // requests that use it; only a pool counts
	closing   sync.Once
	before    flusher // only a pool's

	mu       sync.Mutex
	answered bool
	waiting  func(error) // is told of the answer; nil = nobody
}

var _ line = (*upstream)(nil)

func (e *Edge) newUpstream(st *tunnel.Stream) *upstream {
	return &upstream{Stream: st, edge: e, deadline: time.Now().Add(e.opt.OpenTimeout)}
}

// opened waits for the agent's answer; every call returns the same.
func (u *upstream) opened() error {
	u.answer.Do(func() {
		ctx, cancel := context.WithDeadlineCause(context.Background(), u.deadline, errSilent)
		defer cancel()
		ctx, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		stop := u.Stream.OnUnresponsive(func() { cut(tunnel.ErrUnresponsive) })
		err := u.Stream.WaitOpened(ctx)
		stop()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			_ = u.Stream.Reset(tunnel.Aborted)
		case connectionLost(err): // with the agent, before it had acted
			err = &account.Error{Code: account.CodeEndpointOffline, Msg: "the agent went away", Cause: err}
		}
		u.edge.opt.Meter.CountStream(outcome(err))
		u.answerErr = err
		u.mu.Lock()
		tell := u.waiting
		u.answered, u.waiting = true, nil
		u.mu.Unlock()
		if tell != nil {
			tell(err)
		}
	})
	return u.answerErr
}

// carry lets a request's body know what the agent answers, or has answered.
func (u *upstream) carry(body *attempt) {
	u.mu.Lock()
	answered := u.answered
	if !answered {
		body.begin()
		u.waiting = body.settle
	}
	u.mu.Unlock()
	if answered {
		body.settle(u.answerErr)
	}
}

// connectionLost says that a stream ended with its tunnel connection, and not by anything that the
// agent did to the stream.
func connectionLost(err error) bool {
	var refused *tunnel.RefusedError
	var reset *tunnel.ResetError
	return !errors.As(err, &refused) && !errors.As(err, &reset) && !errors.Is(err, io.ErrUnexpectedEOF)
}

func outcome(err error) string {
	var refused *tunnel.RefusedError
	switch {
	case err == nil:
		return "opened"
	case errors.As(err, &refused):
		return refused.Code.String()
	case errors.Is(err, errSilent), errors.Is(err, tunnel.ErrUnresponsive):
		return "silent"
	case account.CodeOf(err) == account.CodeEndpointOffline:
		return "offline"
	}
	return "broken"
}

// Read waits for the agent's answer first.
func (u *upstream) Read(p []byte) (int, error) {
	if err := u.opened(); err != nil {
		return 0, err
	}
	u.before.flush()
	n, err := u.Stream.Read(p)
	u.edge.opt.Meter.CountBytes(0, n)
	return n, err
}

// Next is Read without a copy.
func (u *upstream) Next() ([]byte, error) {
	if err := u.opened(); err != nil {
		return nil, err
	}
	p, err := u.Stream.Next()
	u.edge.opt.Meter.CountBytes(0, len(p))
	return p, err
}

// Write does not wait. Where it fails because the agent refused, it says so.
func (u *upstream) Write(p []byte) (int, error) {
	n, err := u.Stream.Write(p)
	u.edge.opt.Meter.CountBytes(n, 0)
	if err != nil {
		if refusal := u.opened(); refusal != nil {
			err = refusal
		}
	}
	return n, err
}

// closeIdle ends a stream between two requests: the agent's upstream sees an ordinary end of
// connection, no abort. It does not wait for the network: a transport that takes leave of an idle
// stream lets none of its requests go on meanwhile.
func (u *upstream) closeIdle() {
	started := u.edge.background(func() { _ = u.CloseGracefully(goodbye) })
	if !started {
		_ = u.Stream.Close()
	}
}

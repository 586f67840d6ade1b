// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Codes with which Accept refuses a caller. An agent has more for Incoming.Refuse.
const (
	CodeHeader          = "HEADER"            // the header is unreadable
	CodeWrongURL        = "WRONG_URL"         // the agent's certificate does not name the URL
	CodeCallerNotProven = "CALLER_NOT_PROVEN" // the agent's owner requires a proof
)

// RefusedError means that the agent refused the connection. It has not used any of the caller's
// bytes, so they may be sent elsewhere.
type RefusedError struct {
	Code string `json:"refused,omitempty"`
	Text string `json:"text,omitempty"` // a sentence of the agent, at most 512 bytes
}

// Error returns the agent's sentence.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the agent refused (%s): %s", e.Code, e.Text)
}

// shorten cuts a text of a refusal at 512 bytes, and replaces what cannot be printed.
func shorten(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text[:min(len(text), 512)], ""))
}

// Connect runs the handshake and the first flight on a stream that is open. An error is an
// *UntrustedError, a *RefusedError, ctx's cause, or one of the network; the stream is aborted then,
// by its method Distrust, if it has one, when the agent is not trusted.
func (t *Trust) Connect(ctx context.Context, below Below, h Header) (*Conn, error) {
	s, err := t.Handshake(ctx, below, h.URL)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, h)
}

// Spare is a connection whose handshake is over, and on which nothing about a caller was sent. Its owner
// must call Open, or abort the stream below.
type Spare struct {
	trust  *Trust
	config *tls.Config
	conn   *Conn
}

// Handshake is the first half of Connect, for the endpoint at a URL.
func (t *Trust) Handshake(ctx context.Context, below Below, u account.EndpointURL) (*Spare, error) {
	cfg := t.config(u)
	s := &Spare{t, cfg, newConn(below, tls.Client, cfg)}
	err := run(ctx, below, func() error {
		err := s.conn.handshake()
		stream, ok := below.(interface{ Distrust() error })
		if ok && errors.As(err, new(*UntrustedError)) {
			_ = stream.Distrust()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Proves reports whether the spare, for the URL, was made with the certificate that proves the caller now.
func (s *Spare) Proves(u account.EndpointURL) bool { return s.trust.config(u) == s.config }

// Open is the second half of Connect. The header's URL is the spare's.
func (s *Spare) Open(ctx context.Context, h Header) (*Conn, error) {
	err := run(ctx, s.conn.records.Below, func() error {
		frame := h.frame()
		if s.trust.options.Token != nil {
			frame.Token, _ = s.trust.options.Token()
		}
		return s.conn.open(frame)
	})
	if err != nil {
		return nil, err
	}
	return s.conn, nil
}

// handshake is the caller's. Unless verify or the stream below fails it, the peer does not speak the
// protocol.
func (c *Conn) handshake() error {
	err := c.shake()
	var untrusted *UntrustedError
	if err != nil && !errors.As(err, &untrusted) && !c.records.broken.Load() {
		return &UntrustedError{Reason: NotSealed, Err: err}
	}
	return err
}

// open sends the header and reads the answer.
func (c *Conn) open(header headerFrame) error {
	var answer answerFrame
	err := writeFrame(c, header)
	if err == nil {
		err = readFrame(c, &answer)
	}
	switch {
	case err != nil:
		return fmt.Errorf("opening a sealed connection: %w", err)
	case answer.Code != "":
		return &RefusedError{shorten(answer.Code), shorten(answer.Text)}
	case !answer.Opened:
		return errors.New("opening a sealed connection: the agent neither opened nor refused it")
	}
	return nil
}

// run runs a step of a connection's beginning. It aborts the stream below when that fails or when
// ctx ends, which ends the step with ctx's cause.
func run(ctx context.Context, below Below, step func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = below.Abort() })
	err := step()
	if !stop() || err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = below.Abort()
	}
	return err
}

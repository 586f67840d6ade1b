// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
)

// ReadHint reads the agent's session id from a stream that is open: a hint, which nothing proves, by
// which a forwarder names the members that it tried. An error is an *UntrustedError, ctx's or one of
// the network; the stream is aborted then.
func ReadHint(ctx context.Context, below Below) (sessionID string, err error) {
	err = run(ctx, below, func() error {
		sessionID, err = readHint(below)
		return err
	})
	return sessionID, err
}

// Connect runs the handshake and the first flight on a stream whose hint was read. An error is an
// *UntrustedError, a *RefusedError, ctx's, or one of the network or the proof's source; the stream is
// aborted then.
func (t *Trust) Connect(ctx context.Context, below Below, h Header) (*Conn, error) {
	var c *Conn
	err := run(ctx, below, func() error {
		cfg, err := t.config(h.URL)
		if err != nil {
			return err
		}
		c = newConn(below, tls.Client, cfg)
		if err := c.tls.HandshakeContext(ctx); err != nil {
			return c.handshakeError(err)
		}
		c.peer = keyOf(c.tls.ConnectionState().PeerCertificates[0])
		return c.open(h)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// handshakeError returns the reason why a handshake failed: unless the stream below did, or verify
// has returned its own, the peer does not speak the protocol.
func (c *Conn) handshakeError(err error) error {
	var untrusted *UntrustedError
	if errors.As(err, &untrusted) || c.below.broken.Load() {
		return err
	}
	return &UntrustedError{Reason: NotSealed, Err: err}
}

// open sends the header and reads the answer.
func (c *Conn) open(h Header) error {
	if err := writeFrame(c, h.frame()); err != nil {
		return fmt.Errorf("sending the header of a sealed connection: %w", err)
	}
	var answer answerFrame
	if err := readFrame(c, &answer); err != nil {
		return fmt.Errorf("reading the answer to the header of a sealed connection: %w", err)
	}
	switch {
	case answer.Refused != "":
		return &RefusedError{Code: shorten(answer.Refused), Text: shorten(answer.Text)}
	case !answer.Opened:
		return errors.New("the agent neither opened nor refused a sealed connection")
	}
	return nil
}

// run runs a step of a connection's beginning. It aborts the stream below when that fails or when
// ctx ends, which ends the step.
func run(ctx context.Context, below Below, step func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = below.Abort() })
	err := step()
	if !stop() {
		return ctx.Err()
	}
	if err != nil {
		_ = below.Abort()
	}
	return err
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// renewInterval is how often a session's token is compared with the one that Hello returns.
const renewInterval = 10 * time.Second

// tokenRenewal presents a new token to each replica that the session is connected to: replicas
// check tokens independently.
type tokenRenewal struct {
	client    *Client
	session   *Session
	presented map[string]string // last accepted token by replica id
	lastErr   string            // last logged error
}

// renewTokens presents new tokens until ctx ends.
func (c *Client) renewTokens(ctx context.Context, s *Session, first string) {
	r := &tokenRenewal{client: c, session: s, presented: map[string]string{s.welcome.ReplicaID: first}}
	for timer.Sleep(ctx, renewInterval) {
		r.present(ctx, c.cfg.Hello().Token)
	}
}

// present sends the token to the session's replicas that have not accepted it yet, among them those
// that joined meanwhile. Those that refuse it, or do not answer, get it again the next time.
func (r *tokenRenewal) present(ctx context.Context, token string) {
	if token == "" {
		return // Hello reports why
	}
	links := r.session.legs.renewable()
	for id := range r.presented {
		if links[id] == nil {
			delete(r.presented, id)
		}
	}
	for id, l := range links {
		if r.presented[id] == token {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, controlTimeout)
		answer, err := r.session.requests.sendOver(ctx, l, &message{Type: typeRenew, Renew: &renew{Token: token}})
		cancel()
		if err == nil && answer.Renewed == nil {
			err = &Error{Code: CodeInternal, Msg: "the server answered a renewal with " + strconv.Quote(answer.Type)}
		}
		if err != nil {
			r.logError(id, err)
			continue
		}
		r.presented[id], r.lastErr = token, ""
		r.client.cfg.Logger.Debug("the session's token was renewed", "session", r.session.ID(), "replica", id,
			"expires", answer.Renewed.ExpiresAt)
	}
}

// logError logs an error that differs from the last one. A connection that ends is logged elsewhere.
func (r *tokenRenewal) logError(replicaID string, err error) {
	if err.Error() == r.lastErr || !errors.As(err, new(*Error)) {
		return
	}
	r.lastErr = err.Error()
	r.client.cfg.Logger.Warn("the session's token was not renewed; the session ends when the one before expires",
		"session", r.session.ID(), "replica", replicaID, "error", err)
}

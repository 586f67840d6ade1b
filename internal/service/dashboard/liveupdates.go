// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// liveUpdates stream to pages that something has changed.
type liveUpdates struct {
	signIns   *signIns
	audit     account.AuditLog
	endpoints account.EventLog
	streams   httpkit.StreamLimit
	limits    Limits
}

// serve streams to a page when to read itself again: the event "change" after changes, "beat"
// as heartbeat, "end" when the sign-in is over. The event "alive" is sent so often that a page that
// hears nothing for some seconds can say that the server does not answer. Events carry no data: what
// the page then reads is checked like any other request.
func (l *liveUpdates) serve(c *call) error {
	release, ok := l.streams.Acquire(c.AccountID())
	if !ok {
		c.SetRetryAfter(30 * time.Second)
		c.Writer.WriteHeader(http.StatusTooManyRequests)
		return account.Errorf(account.CodeTooMany,
			"the account has %d streams of live updates open, which is its limit",
			l.streams.Max)
	}
	defer release()
	audit, cancel := l.audit.SubscribeAudit(c.AccountID())
	defer cancel()
	var endpoints <-chan struct{} // nil for a page without endpoints, or a key that may not read them
	if c.hasScope(readScopes...) && strings.Contains(c.Request.URL.Query().Get("of"), "endpoints") {
		endpoints, cancel = l.endpoints.Subscribe(c.AccountID())
		defer cancel()
	}
	stream, err := c.StartStream("text/event-stream", l.limits.WriteTimeout)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := writeEvent(stream, "hello"); err != nil {
		return err
	}
	return l.writeEvents(c, stream, audit, endpoints)
}

// writeEvents writes events until the client goes, its sign-in ends, the stream has reached its
// lifetime, or the server stops.
func (l *liveUpdates) writeEvents(c *call, stream *httpkit.Stream, audit, endpoints <-chan struct{}) error {
	check, beat := time.NewTicker(l.limits.SignInCheckInterval), time.NewTicker(l.limits.Heartbeat)
	defer check.Stop()
	defer beat.Stop()
	until := c.now().Add(l.limits.StreamLifetime)
	for {
		event := "alive"
		select {
		case <-c.Context().Done():
			return nil
		case <-audit:
			event = "change"
		case <-endpoints:
			event = "change"
		case <-beat.C:
			event = "beat"
		case <-check.C:
		}
		if err := l.signIns.authenticate(c); err != nil {
			if account.CodeOf(err).Status() == http.StatusUnauthorized {
				return writeEvent(stream, "end")
			}
			return nil // the store does not answer; the browser opens a new stream
		}
		if c.now().After(until) || !c.hasScope(identityScopes...) {
			return nil
		}
		if err := writeEvent(stream, event); err != nil {
			return err
		}
	}
}

// writeEvent sends a server-sent event.
func writeEvent(stream *httpkit.Stream, event string) error {
	if _, err := stream.Write([]byte("event: " + event + "\ndata: 1\n\n")); err != nil {
		return err
	}
	return stream.Flush()
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// liveUpdates streams to a page when to read itself again: the event "change" after changes, "beat"
// as heartbeat, "end" when the sign-in is over. The event "alive" is sent so often that a page that
// hears nothing for some seconds can say that the server does not answer. Events carry no data: what
// the page then reads is checked like any other request.
func (s *server) liveUpdates(c *call) error {
	release, ok := s.streams.Acquire(c.AccountID())
	if !ok {
		c.SetRetryAfter(30 * time.Second)
		c.Writer.WriteHeader(http.StatusTooManyRequests)
		return account.Errorf(account.CodeTooMany,
			"the account has %d streams of live updates open, which is its limit",
			s.streams.Max)
	}
	defer release()
	wake, cancel := s.subscribe(c)
	defer cancel()
	stream, err := c.StartStream("text/event-stream", s.opt.Limits.WriteTimeout)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := writeEvent(stream, "hello"); err != nil {
		return err
	}
	return s.writeEvents(c, stream, wake)
}

// subscribe returns a channel that receives after each commit that concerns the page: audit events,
// and endpoints if the query names them and the key may read them.
func (s *server) subscribe(c *call) (wake <-chan struct{}, cancel func()) {
	audit, cancelAudit := s.opt.Store.SubscribeAudit(c.AccountID())
	if !c.hasScope(readScopes...) || !strings.Contains(c.Request.URL.Query().Get("of"), "endpoints") {
		return audit, cancelAudit
	}
	endpoints, cancelEndpoints := s.opt.Store.Subscribe(c.AccountID())
	both, done := make(chan struct{}, 1), make(chan struct{})
	var joined sync.WaitGroup
	joined.Go(func() {
		for {
			select {
			case <-audit:
			case <-endpoints:
			case <-done:
				return
			}
			select {
			case both <- struct{}{}:
			default:
			}
		}
	})
	return both, func() {
		close(done)
		joined.Wait()
		cancelAudit()
		cancelEndpoints()
	}
}

// writeEvents writes events until the client goes, its sign-in ends, the stream has reached its
// lifetime, or the server stops.
func (s *server) writeEvents(c *call, stream *httpkit.Stream, wake <-chan struct{}) error {
	check, beat := time.NewTicker(s.opt.Limits.SignInCheckInterval), time.NewTicker(s.opt.Limits.Heartbeat)
	defer check.Stop()
	defer beat.Stop()
	until := s.opt.Clock().Add(s.opt.Limits.StreamLifetime)
	for {
		event := "alive"
		select {
		case <-c.Context().Done():
			return nil
		case <-wake:
			event = "change"
		case <-beat.C:
			event = "beat"
		case <-check.C:
		}
		if err := s.authenticate(c); err != nil {
			if account.CodeOf(err).Status() == http.StatusUnauthorized {
				return writeEvent(stream, "end")
			}
			return nil // the store does not answer; the browser opens a new stream
		}
		if s.opt.Clock().After(until) || !c.hasScope(identityScopes...) {
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

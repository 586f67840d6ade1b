// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// watchBatch is how many events are read from the log at once.
const watchBatch = 200

// watchSource is a log that a watch streams.
type watchSource struct {
	subscribe func(accountID string) (wake <-chan struct{}, cancel func())
	// next reads at most watchBatch lines after those that it has returned; CodeGone when the log
	// does not reach back as far.
	next     func() (lines []any, more bool, err error)
	bookmark func() any // a line with the version up to which next has read
}

// watchEndpoints streams the account's log of endpoints from a version on.
func (s *server) watchEndpoints(c *call, f account.EndpointFilter, v account.ResourceVersion) error {
	waited := false // what next returns was committed while the watch waited for it
	return s.stream(c, watchSource{
		subscribe: s.opt.Store.Subscribe,
		next: func() ([]any, bool, error) {
			events, upTo, err := s.opt.Store.EndpointEvents(c.Context(), c.AccountID(), v, f, watchBatch)
			if err != nil {
				return nil, false, err
			}
			v = upTo
			lines := make([]any, 0, len(events))
			for i := range events {
				s.setEndpointURIs(events[i].Endpoint)
				lines = append(lines, &events[i])
			}
			if waited {
				s.reportDelays(events)
			}
			waited = len(events) < watchBatch
			return lines, len(events) == watchBatch, nil
		},
		bookmark: func() any { return &account.EndpointEvent{Type: account.Bookmark, ResourceVersion: v} },
	})
}

// reportDelays reports how old the endpoints are that were created.
func (s *server) reportDelays(events []account.EndpointEvent) {
	if s.opt.Meter == nil {
		return
	}
	for i := range events {
		if e := &events[i]; e.Type == account.Added {
			s.opt.Meter.ObserveWatch(s.opt.Clock().Sub(e.Endpoint.CreatedAt))
		}
	}
}

// stream writes the log, one JSON object a line, until the client goes or does not read, its key is
// deleted, or the server stops.
func (s *server) stream(c *call, log watchSource) error {
	release, ok := s.watches.Acquire(c.AccountID())
	if !ok {
		c.SetRetryAfter(5 * time.Second)
		return account.Errorf(account.CodeTooMany,
			"the account has %d open watches, which is its limit; close some of them",
			s.watches.Max)
	}
	defer release()
	revoked, removeKey := s.keys.add(c.Key.Use())
	defer removeKey()
	wake, cancel := log.subscribe(c.AccountID()) // before the first read, so that no event is missed
	defer cancel()
	batch, more, err := log.next()
	if err != nil {
		return err // the answer has not begun, so CodeGone is its status
	}
	stream, err := c.StartStream("application/x-ndjson", s.opt.Limits.WriteTimeout)
	if err != nil {
		return err
	}
	defer stream.Close()
	out := bufio.NewWriterSize(stream, 16<<10)
	heartbeat := time.NewTicker(s.opt.Heartbeat)
	defer heartbeat.Stop()
	bookmark := false
	for {
		if isClosed(revoked) {
			return nil
		}
		if bookmark && !more {
			batch = append(batch, log.bookmark())
		}
		if err := writeLines(stream, out, batch); err != nil {
			return err
		}
		if bookmark = bookmark && more; !more {
			select {
			case <-wake:
			case <-heartbeat.C:
				bookmark = true
			case <-revoked:
			case <-c.Context().Done():
			}
		}
		if c.Context().Err() != nil {
			return nil
		}
		batch, more, err = log.next()
		switch {
		case c.Context().Err() != nil, account.CodeOf(err) == account.CodeGone:
			return nil // a client that fell behind the log gets 410 when it connects again
		case err != nil:
			return err
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// writeLines writes the values as lines of JSON and sends them.
func writeLines(stream *httpkit.Stream, out *bufio.Writer, values []any) error {
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encoding event: %w", err)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if out.Buffered() == 0 {
		return nil
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return stream.Flush()
}

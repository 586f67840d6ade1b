// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// watchBatch is how many events are read from the log at once.
const watchBatch = 200

// watched is a log that a watch streams.
type watched struct {
	subscribe func(accountID string) (wake <-chan struct{}, cancel func())
	// reads on, at most watchBatch lines; CodeGone when the log does not reach back
	next     func() (lines []any, more bool, err error)
	bookmark func() any // the line that says up to where was read
}

// watchEndpoints streams the account's log of endpoints from a version on.
func (s *server) watchEndpoints(c *call, f account.EndpointFilter, v account.ResourceVersion) error {
	return s.stream(c, watched{
		subscribe: s.opt.Events.Subscribe,
		next: func() ([]any, bool, error) {
			events, upTo, err := s.opt.Events.EndpointEvents(c.r.Context(), c.accountID(), v, f, watchBatch)
			if err != nil {
				return nil, false, err
			}
			v = upTo
			lines := make([]any, 0, len(events))
			for i := range events {
				s.fillEndpoint(events[i].Endpoint)
				lines = append(lines, &events[i])
			}
			return lines, len(events) == watchBatch, nil
		},
		bookmark: func() any { return &account.EndpointEvent{Type: account.Bookmark, ResourceVersion: v} },
	})
}

// stream writes the log, one JSON object a line, until the client goes, is too slow, its key is
// deleted or the server stops.
func (s *server) stream(c *call, log watched) error {
	release, err := s.watches.acquire(c.accountID())
	if err != nil {
		c.w.Header().Set("Retry-After", "5")
		return err
	}
	defer release()
	dead, forget := s.keys.add(c.key.ID)
	defer forget()
	wake, cancel := log.subscribe(c.accountID()) // before the first look, so that nothing falls between
	defer cancel()
	batch, more, err := log.next()
	if err != nil {
		return err // 410, before anything was answered
	}
	out := newLines(c, s.opt.Limits.WriteTimeout)
	defer out.end()
	if err := out.begin(); err != nil {
		return err
	}
	heartbeat := time.NewTicker(s.opt.Heartbeat)
	defer heartbeat.Stop()
	bookmark := false
	for {
		if bookmark && !more {
			batch = append(batch, log.bookmark())
		}
		if err := out.writeAll(batch); err != nil {
			return err
		}
		if bookmark = bookmark && more; !more {
			select {
			case <-wake:
			case <-heartbeat.C:
				bookmark = true
			case <-dead:
			case <-c.r.Context().Done():
			}
		}
		if closed(dead) || c.r.Context().Err() != nil {
			return nil
		}
		batch, more, err = log.next()
		switch {
		case c.r.Context().Err() != nil, account.CodeOf(err) == account.CodeGone:
			return nil // a watcher that fell behind the log gets 410 when it comes again
		case err != nil:
			return err
		}
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// lines writes JSON lines; whoever does not take them within the time-out is cut off.
type lines struct {
	c       *call
	control *http.ResponseController
	timeout time.Duration
	buffer  *bufio.Writer
}

func newLines(c *call, timeout time.Duration) *lines {
	l := &lines{c: c, control: http.NewResponseController(c.w), timeout: timeout}
	l.buffer = bufio.NewWriterSize(deadlineWriter{l}, 16<<10)
	return l
}

// deadlineWriter gives each write its own deadline.
type deadlineWriter struct{ l *lines }

func (d deadlineWriter) Write(p []byte) (int, error) {
	if err := d.l.extend(); err != nil {
		return 0, err
	}
	return d.l.c.w.Write(p)
}

func (l *lines) extend() error { return l.control.SetWriteDeadline(time.Now().Add(l.timeout)) }

// begin sends the header, so that the client knows that the watch is up.
func (l *lines) begin() error {
	l.c.w.Header().Set("Content-Type", "application/x-ndjson")
	if l.c.r.ProtoMajor == 1 {
		l.c.w.Header().Set("Connection", "close") // our write deadline stays with the connection
	}
	l.c.w.WriteHeader(http.StatusOK)
	return l.send()
}

func (l *lines) write(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding event: %w", err)
	}
	if _, err := l.buffer.Write(append(line, '\n')); err != nil {
		return clientGone(err)
	}
	return nil
}

func (l *lines) writeAll(values []any) error {
	for _, v := range values {
		if err := l.write(v); err != nil {
			return err
		}
	}
	return l.flush()
}

func (l *lines) flush() error {
	if l.buffer.Buffered() == 0 {
		return nil
	}
	if err := l.buffer.Flush(); err != nil {
		return clientGone(err)
	}
	return l.send()
}

func (l *lines) send() error {
	if err := l.extend(); err != nil {
		return clientGone(err)
	}
	if err := l.control.Flush(); err != nil {
		return clientGone(err)
	}
	return nil
}

// end leaves time for the end of the answer; the connection is not used again.
func (l *lines) end() { _ = l.extend() }

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"net/http"
	"sync"
	"time"
)

// ClientGoneError is the failure of writing to a client: it is not a failure of the server.
type ClientGoneError struct{ Cause error }

// Error implements error.
func (e ClientGoneError) Error() string { return "client is gone: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e ClientGoneError) Unwrap() error { return e.Cause }

// Stream is an answer that stays open. A write that the client does not accept within the time-out
// fails. Errors are of type ClientGoneError.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// StartStream sends the header of a stream, so that the client knows that it is open.
func (c *Call) StartStream(contentType string, timeout time.Duration) (*Stream, error) {
	s := &Stream{w: c.Writer, control: http.NewResponseController(c.Writer), timeout: timeout}
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	if c.Request.ProtoMajor == 1 {
		h.Set("Connection", "close") // the write deadline would stay with the connection
	}
	c.Writer.WriteHeader(http.StatusOK)
	return s, s.Flush()
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.extend(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err != nil {
		return n, ClientGoneError{err}
	}
	return n, nil
}

// Flush sends what was written.
func (s *Stream) Flush() error {
	if err := s.extend(); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return ClientGoneError{err}
	}
	return nil
}

// Close leaves the time-out for the end of the answer, which net/http sends when the handler
// returns.
func (s *Stream) Close() { _ = s.extend() }

func (s *Stream) extend() error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return ClientGoneError{err}
	}
	return nil
}

// StreamLimit limits the open streams of each account. It is safe for concurrent use.
type StreamLimit struct {
	Max int

	mu   sync.Mutex
	open map[string]int
}

// Acquire counts one more stream of the account until release is called, which must be called
// once. ok is false when the account has as many as it may.
func (l *StreamLimit) Acquire(accountID string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[accountID] >= l.Max {
		return nil, false
	}
	if l.open == nil {
		l.open = map[string]int{}
	}
	l.open[accountID]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[accountID]--; l.open[accountID] == 0 {
			delete(l.open, accountID)
		}
	}, true
}

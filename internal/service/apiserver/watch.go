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

// watchedLog is a log that a watch streams.
type watchedLog interface {
	subscribe(accountID string) (wake <-chan struct{}, cancel func())
	// next reads at most watchBatch lines after those that it has returned; CodeGone when the log
	// does not reach back as far.
	next(c *call) (lines []any, more bool, err error)
	// bookmark returns a line with the version up to which next has read.
	bookmark() any
}

// watches streams logs. It is safe for concurrent use.
type watches struct {
	streams   httpkit.StreamLimit
	keys      keyMonitor
	timeout   time.Duration // timeout limits how long a watcher may take what is written to it.
	heartbeat time.Duration
}

// stream writes the log, one JSON object a line, until the client goes or does not read, its key is
// deleted, or the server stops.
func (w *watches) stream(c *call, log watchedLog) error {
	release, ok := w.streams.Acquire(c.AccountID())
	if !ok {
		c.SetRetryAfter(5 * time.Second)
		return account.Errorf(account.CodeTooMany,
			"the account has %d open watches, which is its limit; close some of them",
			w.streams.Max)
	}
	defer release()
	revoked, removeKey := w.keys.add(c.Key.Use())
	defer removeKey()
	wake, cancel := log.subscribe(c.AccountID()) // before the first read, so that no event is missed
	defer cancel()
	batch, more, err := log.next(c)
	if err != nil {
		return err // the answer has not begun, so CodeGone is its status
	}
	stream, err := c.StartStream("application/x-ndjson", w.timeout)
	if err != nil {
		return err
	}
	defer stream.Close()
	out := bufio.NewWriterSize(stream, 16<<10)
	heartbeat := time.NewTicker(w.heartbeat)
	defer heartbeat.Stop()
	bookmark := false
	for {
		select {
		case <-revoked:
			return nil
		default:
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
		batch, more, err = log.next(c)
		switch {
		case c.Context().Err() != nil, account.CodeOf(err) == account.CodeGone:
			return nil // a client that fell behind the log gets 410 when it connects again
		case err != nil:
			return err
		}
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

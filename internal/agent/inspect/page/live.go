// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// update is what a stream sends of a list: the ids of its rows, newest first, and the rows that
// have changed since the update before. A page that applies it holds no more rows than these.
type update struct {
	Order   []string `json:"order"`
	Rows    []row    `json:"rows"`
	Count   string   `json:"count"`
	Dropped string   `json:"dropped"`
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// send sends an event. A browser that does not accept it within the time-out is gone.
func (s *stream) send(event string, data []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // a writer without deadlines is a test's
	message := "event: " + event + "\ndata: " + string(data) + "\n\n"
	if _, err := s.w.Write([]byte(message)); err != nil {
		return err
	}
	return s.control.Flush()
}

// streams are the pages that wait for updates, of which there are not too many at a time.
type streams struct {
	recorder Recorder
	limits   Limits
	slots    chan struct{}
}

// follow calls send at once, and after changes of the recorder, but not more often than the update
// interval, until the browser is gone, the agent stops, or send returns an error.
func (s *streams) follow(c *call, send func(*stream) error) error {
	select {
	case s.slots <- struct{}{}:
	default:
		c.w.Header().Set("Retry-After", "30")
		return &problem{http.StatusServiceUnavailable, "Too much at once",
			"Too many pages of the inspector are open; close some."}
	}
	defer func() { <-s.slots }()
	wake, cancel := s.recorder.Subscribe()
	defer cancel()
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Connection", "close") // the write deadline would stay with the connection
	if c.r.Method == http.MethodHead {
		return nil
	}
	c.w.WriteHeader(http.StatusOK)
	out := &stream{c.w, http.NewResponseController(c.w), s.limits.WriteTimeout}
	beat := time.NewTicker(s.limits.Heartbeat)
	defer beat.Stop()
	for {
		if send(out) != nil {
			return nil // the browser is gone
		}
		if !c.pause(s.limits.UpdateInterval) {
			return nil
		}
		for waiting := true; waiting; {
			select {
			case <-wake:
				waiting = false
			case <-beat.C:
				if out.send("beat", []byte("1")) != nil {
					return nil
				}
			case <-c.r.Context().Done():
				return nil
			}
		}
	}
}

// pause waits, and reports whether the browser is still there.
func (c *call) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-c.r.Context().Done():
		return false
	}
}

// live streams the changes of a list.
func (l *lists) live(c *call) error {
	q := listQueryOf(c.r.URL.Query())
	sent, version := map[string]row{}, uint64(0)
	first, cache := true, &rowCache{}
	return c.s.streams.follow(c, func(out *stream) error {
		now := l.recorder.Version()
		if !first && now == version {
			return nil
		}
		first, version = false, now
		rows, more := l.rows(q, cache)
		u := update{Order: make([]string, 0, len(rows)), Rows: []row{}, Count: rowCount(len(rows), more),
			Dropped: l.dropped()}
		next := make(map[string]row, len(rows))
		for _, r := range rows {
			if was, ok := sent[r.ID]; !ok || was != r {
				u.Rows = append(u.Rows, r)
			}
			u.Order = append(u.Order, r.ID)
			next[r.ID] = r
		}
		sent = next
		data, err := json.Marshal(u)
		if err != nil {
			return err
		}
		return out.send("update", data)
	})
}

// live streams that the exchange has changed, until it is done or no longer recorded.
func (d *details) live(c *call, e *inspect.Exchange) error {
	over := false
	return c.s.streams.follow(c, func(out *stream) error {
		e, ok := d.recorder.Get(e.ID)
		switch {
		case over:
			return nil
		case !ok || e.Done:
			over = true
			return out.send("done", []byte("1"))
		}
		return out.send("change", []byte("1"))
	})
}

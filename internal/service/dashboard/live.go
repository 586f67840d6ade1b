// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// streamCounts bounds the open streams of each account.
type streamCounts struct {
	most int

	mu   sync.Mutex
	open map[string]int
}

// acquire counts one more stream until release is called.
func (n *streamCounts) acquire(accountID string) (release func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[accountID] >= n.most {
		return nil, account.Errorf(account.CodeTooMany, "the account has %d streams of live updates open, which is its limit",
			n.most)
	}
	if n.open == nil {
		n.open = map[string]int{}
	}
	n.open[accountID]++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.open[accountID]--; n.open[accountID] == 0 {
			delete(n.open, accountID)
		}
	}, nil
}

// live tells a page when to read itself again: an event "change" after changes, "beat" as
// heartbeat, "end" when the sign-in is over. It carries no data, so it tells nothing to whoever may
// not see it; what a page then reads is checked like any other request.
func (s *server) live(c *call) error {
	release, err := s.streams.acquire(c.accountID())
	if err != nil {
		c.w.Header().Set("Retry-After", "30")
		c.w.WriteHeader(http.StatusTooManyRequests)
		return err
	}
	defer release()
	wake, cancel := s.subscribe(c)
	defer cancel()
	out := eventStream{w: c.w, control: http.NewResponseController(c.w), timeout: s.opt.Limits.WriteTimeout}
	c.w.Header().Set("Content-Type", "text/event-stream")
	if c.r.ProtoMajor == 1 {
		c.w.Header().Set("Connection", "close") // our write deadline stays with the connection
	}
	c.w.WriteHeader(http.StatusOK)
	if err := out.say("hello"); err != nil {
		return nil // the browser is gone
	}
	return s.follow(c, out, wake)
}

// subscribe wakes after each commit of what the page wants to know of.
func (s *server) subscribe(c *call) (wake <-chan struct{}, cancel func()) {
	audit, cancelAudit := s.opt.Audit.SubscribeAudit(c.accountID())
	if !c.may(reading...) || !strings.Contains(c.r.URL.Query().Get("of"), "endpoints") {
		return audit, cancelAudit
	}
	endpoints, cancelEndpoints := s.opt.Events.Subscribe(c.accountID())
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

// follow speaks until the browser goes, the sign-in is over, the stream is old, or the server
// stops.
func (s *server) follow(c *call, out eventStream, wake <-chan struct{}) error {
	check, beat := time.NewTicker(s.opt.Limits.SignInCheckInterval), time.NewTicker(s.opt.Limits.Heartbeat)
	defer check.Stop()
	defer beat.Stop()
	until := s.opt.Clock().Add(s.opt.Limits.StreamLifetime)
	for {
		event := ""
		select {
		case <-c.ctx().Done():
			return nil
		case <-wake:
			event = "change"
		case <-beat.C:
			event = "beat"
		case <-check.C:
		}
		if err := s.recognise(c); err != nil {
			if code := account.CodeOf(err); code.Status() == http.StatusUnauthorized {
				_ = out.say("end") // the browser may be gone
			}
			return nil // without the store there is nothing to tell; the browser comes again
		}
		if s.opt.Clock().After(until) || !c.may(identities...) {
			return nil
		}
		if event == "" {
			continue
		}
		if err := out.say(event); err != nil {
			return nil
		}
	}
}

// eventStream writes server-sent events; a browser that does not take them within the time-out is
// cut off.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (e eventStream) say(event string) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(e.timeout)); err != nil {
		return err
	}
	if _, err := e.w.Write([]byte("event: " + event + "\ndata: 1\n\n")); err != nil {
		return err
	}
	return e.control.Flush()
}

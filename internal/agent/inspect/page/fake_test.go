// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// fakeRecorder is a Recorder of exchanges that a test adds.
type fakeRecorder struct {
	mu        sync.Mutex
	exchanges []*inspect.Exchange // newest first
	version   uint64
	wakes     map[chan struct{}]bool
	dropped   int64
	replays   []inspect.Change
	replayErr error
}

func (f *fakeRecorder) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.version++
	for wake := range f.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// add adds exchanges as the newest, and drops the oldest behind 500.
func (f *fakeRecorder) add(added ...*inspect.Exchange) {
	f.change(func() {
		for _, e := range added {
			f.exchanges = append([]*inspect.Exchange{e}, f.exchanges...)
		}
		f.exchanges = f.exchanges[:min(len(f.exchanges), 500)]
	})
}

// set replaces the exchange with the same ID.
func (f *fakeRecorder) set(changed *inspect.Exchange) {
	f.change(func() {
		for i, e := range f.exchanges {
			if e.ID == changed.ID {
				f.exchanges[i] = changed
			}
		}
	})
}

func (f *fakeRecorder) List(want inspect.Filter) []*inspect.Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*inspect.Exchange
	for _, e := range f.exchanges {
		status, _, _ := statusOf(e)
		caller := fmt.Sprint(e.Caller)
		text := e.Request.URL + string(e.Request.Body)
		if e.Response != nil {
			text += string(e.Response.Body)
		}
		class := status[:1] + "xx"
		if want.Status != "" && want.Status != status && want.Status != class ||
			!strings.Contains(e.Request.URL, want.Path) || !strings.Contains(caller, want.Caller) ||
			!strings.Contains(text, want.Text) {
			continue
		}
		bare := *e
		bare.Request.Body = nil
		if e.Response != nil {
			response := *e.Response
			response.Body = nil
			bare.Response = &response
		}
		if found = append(found, &bare); len(found) == want.Limit {
			break
		}
	}
	return found
}

func (f *fakeRecorder) Get(id string) (*inspect.Exchange, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.exchanges {
		if e.ID == id {
			return e, true
		}
	}
	return nil, false
}

func (f *fakeRecorder) Subscribe() (wake <-chan struct{}, cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wakes == nil {
		f.wakes = map[chan struct{}]bool{}
	}
	ch := make(chan struct{}, 1)
	f.wakes[ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.wakes, ch)
	}
}

func (f *fakeRecorder) Version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

func (f *fakeRecorder) Clear() { f.change(func() { f.exchanges = nil }) }

func (f *fakeRecorder) Dropped() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

func (f *fakeRecorder) Endpoints() []inspect.Endpoint {
	return []inspect.Endpoint{{ID: "ep-1", URL: "http://api.demo", Upstream: "http://localhost:8080", Online: true,
		Marked: []string{"X-Marked"}},
		{ID: "ep-2", URL: "http://web.demo", AlsoAt: "http://web.demo:8080", Upstream: "http://localhost:3000"}}
}

func (f *fakeRecorder) Marked(endpointID string) []string {
	for _, e := range f.Endpoints() {
		if e.ID == endpointID {
			return e.Marked
		}
	}
	return nil
}

func (f *fakeRecorder) replayed() []inspect.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.replays)
}

func (f *fakeRecorder) lastReplay() inspect.Change {
	all := f.replayed()
	return all[len(all)-1]
}

// failReplays makes replays fail.
func (f *fakeRecorder) failReplays(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replayErr = err
}

func (f *fakeRecorder) Replay(_ context.Context, id string, c inspect.Change) (string, error) {
	e, ok := f.Get(id)
	if !ok {
		return "", errors.New("there is no exchange " + id)
	}
	f.mu.Lock()
	f.replays = append(f.replays, c)
	err, n := f.replayErr, len(f.replays)
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	again := *e
	again.ID, again.ReplayOf, again.Done = fmt.Sprintf("replay-%d", n), id, true
	if c.Path != "" {
		again.Request.URL = c.Path
	}
	f.add(&again)
	return again.ID, nil
}

// Secrets that fixtures have. No page, export or log may show them by default.
const (
	secretBearer   = "planted-bearer-0a1b2c3d"
	secretCookie   = "planted-cookie-9f8e7d6c"
	secretQuery    = "planted-query-5566778899"
	secretForm     = "planted-form-1122334455"
	secretMarked   = "planted-marked-abcdef"
	secretRaw      = "planted-raw-13579bdf"
	secretPassword = "planted/pass word\"24680"
)

var testStart = time.Date(2026, 11, 23, 8, 30, 0, 123e6, time.UTC)

// exchange returns a finished exchange.
func exchange(id, method, target string, status int, contentType, body string) *inspect.Exchange {
	return &inspect.Exchange{ID: id, Start: testStart, EndpointID: "ep-1", EndpointURL: "http://api.demo",
		Caller: inspect.Caller{IP: "10.0.0.7", Pod: "web-1", Namespace: "shop", ServiceAccount: "web", Cluster: "eu"},
		Request: inspect.Message{Method: method, URL: target, Proto: "HTTP/1.1",
			Header: http.Header{"Host": {"api.demo"}, "Accept": {"*/*"}}},
		Response: &inspect.Message{Status: status, Proto: "HTTP/1.1",
			Header: http.Header{"Content-Type": {contentType}},
			Body:   []byte(body), BodySize: int64(len(body))},
		Duration: 12 * time.Millisecond, FirstByte: 9 * time.Millisecond, Done: true}
}

// secretExchange returns an exchange with a secret in every place, which its upstream repeats.
func secretExchange() *inspect.Exchange {
	e := exchange("secret", "POST", "/login?page=1&access_token="+secretQuery, 200, "application/json",
		`{"saw":"Bearer `+secretBearer+`","cookie":"sid=`+secretCookie+`","q":"`+secretQuery+
			`","p":"planted/pass word\"24680"}`)
	h := e.Request.Header
	h.Set("Authorization", "Bearer "+secretBearer)
	h.Set("Cookie", "theme=dark; sid="+secretCookie)
	h.Set("X-Marked", secretMarked)
	h.Set("Proxy-Authorization", "Basic cGVyc29uOnBsYW50ZWQvcGFzcyB3b3JkIjI0Njgw")
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	e.Request.Body = []byte("user=ann&password=" + secretForm + "&note=" + secretMarked)
	e.Request.BodySize = int64(len(e.Request.Body))
	e.Response.Header.Set("Set-Cookie", "sid="+secretCookie+"; HttpOnly")
	e.Response.Trailer = http.Header{"X-Trace": {"1"}, "X-Marked": {secretMarked}}
	e.Error = "reading the answer: unexpected " + secretBearer
	e.Frames = []inspect.Frame{{At: time.Millisecond, FromClient: true, Kind: inspect.FrameText,
		Data: []byte(`{"token":"` + secretForm + `","again":"` + secretBearer + `"}`), Size: 80}}
	return e
}

// rawExchange returns an exchange that is not HTTP.
func rawExchange() *inspect.Exchange {
	e := exchange("raw", "", "", 0, "", "")
	e.Raw, e.Request.Header, e.Response.Header = true, nil, nil
	e.Request.Body = []byte("AUTH " + secretRaw + "\r\n")
	e.Request.BodySize = int64(len(e.Request.Body))
	return e
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func newRecorder(t *testing.T) *Recorder {
	t.Helper()
	r := New()
	t.Cleanup(r.Close)
	return r
}

// await returns when holds returns true.
func await(t *testing.T, r *Recorder, what string, holds func() bool) {
	t.Helper()
	wake, cancel := r.Subscribe()
	defer cancel()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-wake:
		case <-timeout:
			t.Fatalf("no %s; there is %s", what, describe(r))
		}
	}
}

func describe(r *Recorder) string {
	var b strings.Builder
	for _, e := range r.List(Filter{}) {
		fmt.Fprintf(&b, "\n%s %s %s done=%t raw=%t error=%q", e.ID, e.Request.Method, e.Request.URL, e.Done, e.Raw,
			e.Error)
	}
	return b.String()
}

// awaitDone returns the exchanges, oldest first, once there are n and all are done.
func awaitDone(t *testing.T, r *Recorder, n int) []*Exchange {
	t.Helper()
	await(t, r, fmt.Sprintf("%d exchanges that are done", n), func() bool {
		all := r.List(Filter{})
		return len(all) == n && !slices.ContainsFunc(all, func(e *Exchange) bool { return !e.Done })
	})
	return whole(t, r)
}

// whole returns all exchanges with bodies, oldest first.
func whole(t *testing.T, r *Recorder) []*Exchange {
	t.Helper()
	var all []*Exchange
	for _, e := range slices.Backward(r.List(Filter{})) {
		got, ok := r.Get(e.ID)
		if !ok {
			t.Fatalf("%s is gone", e.ID)
		}
		all = append(all, got)
	}
	return all
}

// wire records what two sides send on a connection, in pieces.
type wire struct {
	c     *conn
	piece int // bytes; 0 = all at once
}

func newWire(r *Recorder, piece int) *wire {
	return &wire{r.newConn(Info{EndpointID: "ep-1", EndpointURL: "http://api.demo"}), piece}
}

func (w *wire) client(s string) { w.send(&w.c.client, s) }
func (w *wire) server(s string) { w.send(&w.c.server, s) }

func (w *wire) send(f *feed, s string) {
	for p := range slices.Chunk([]byte(s), max(w.piece, 1)) {
		if w.piece == 0 {
			p = []byte(s)
		}
		w.c.record(f, p, w.c.recorder.now())
		if w.piece == 0 {
			return
		}
	}
}

func TestRecorder_KeepsLast500(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	for i := range 700 {
		w.client(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i))
		w.server("HTTP/1.1 204 No Content\r\n\r\n")
	}
	await(t, r, "the last request", func() bool { return len(r.List(Filter{Path: "/699", Status: "204"})) == 1 })
	all := r.List(Filter{})
	if len(all) != maxRecords || all[0].Request.URL != "/699" || all[499].Request.URL != "/200" {
		t.Errorf("%d exchanges, from %s to %s", len(all), all[len(all)-1].Request.URL, all[0].Request.URL)
	}
	if _, ok := r.Get(all[499].ID); !ok {
		t.Error("the oldest cannot be read")
	}
	if _, ok := r.Get(r.idPrefix + "00000000"); ok {
		t.Error("an exchange that was dropped can be read")
	}
	for _, id := range []string{"", "x", r.idPrefix, r.idPrefix + "-1", r.idPrefix + "1f4",
		r.idPrefix + "ffffffffffffffffff"} {
		if _, ok := r.Get(id); ok {
			t.Errorf("there is an exchange %q", id)
		}
	}
}

func TestRecorder_Keeps64MiB(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 64<<10)
	body := strings.Repeat("x", maxBody)
	for i := range 100 {
		w.client(fmt.Sprintf("POST /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body))
		w.server("HTTP/1.1 204 No Content\r\n\r\n")
		await(t, r, "request", func() bool { return len(r.List(Filter{Path: fmt.Sprint("/", i), Status: "204"})) >= 1 })
	}
	r.mu.Lock()
	memory, sum := r.memory, int64(0)
	for _, x := range r.records {
		sum += x.memory
	}
	r.mu.Unlock()
	if memory > maxMemory || memory != sum || memory < maxMemory-2<<20 {
		t.Errorf("counted %d bytes, the records have %d", memory, sum)
	}
	if n := len(r.List(Filter{})); n < 60 || n > 64 {
		t.Errorf("%d exchanges are kept", n)
	}
	r.Clear()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory != 0 || len(r.records) != 0 {
		t.Errorf("after Clear: %d bytes, %d records", r.memory, len(r.records))
	}
}

// TestTap_DropsWhenFull checks that a tap goes on without waiting while nothing is parsed, and that
// later requests are recorded again.
func TestTap_DropsWhenFull(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	r.mu.Lock() // the goroutine waits
	body := strings.Repeat("x", 64<<10)
	for i := range 1000 {
		w.client(fmt.Sprintf("POST /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n", i, len(body)))
		w.client(body)
		w.server("HTTP/1.1 204 No Content\r\n\r\n")
	}
	if queued := r.queued.Load(); queued > maxQueued {
		t.Errorf("%d bytes are queued", queued)
	}
	r.mu.Unlock()
	if r.Dropped() < 50<<20 {
		t.Errorf("dropped %d bytes", r.Dropped())
	}
	await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
	w.client("GET /later HTTP/1.1\r\n\r\n")
	w.server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	await(t, r, "later request", func() bool { return len(r.List(Filter{Path: "/later", Status: "200"})) == 1 })
	if r.queued.Load() != 0 {
		t.Errorf("%d bytes are queued for ever", r.queued.Load())
	}
	for _, e := range r.List(Filter{}) {
		if e.Request.Truncated && e.Request.URL != "/later" && e.Lost == 0 && e.Error == "" {
			t.Errorf("%s lacks bytes and does not say so: %+v", e.Request.URL, e)
		}
	}
}

func TestTap_LengthBeyondLimit(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	r := newRecorder(t)
	w := newWire(r, 0)
	w.client("GET /big HTTP/1.1\r\n\r\n")
	w.server(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
	part := strings.Repeat("abcdefgh", 8<<10)
	for range size / len(part) {
		w.server(part)
		if r.queued.Load() > 4<<20 { // a network would be slower
			await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
		}
	}
	w.client("GET /next HTTP/1.1\r\n\r\n")
	w.server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	all := awaitDone(t, r, 2)
	big := all[0].Response
	if big.BodySize != size || len(big.Body) != maxBody || !big.Truncated || all[0].Lost != 0 || all[0].Error != "" {
		t.Errorf("%d of %d bytes, truncated %t, lost %d, error %q", len(big.Body), big.BodySize, big.Truncated,
			all[0].Lost,
			all[0].Error)
	}
	if string(all[1].Response.Body) != "ok" {
		t.Errorf("the next answer is %q", all[1].Response.Body)
	}
	if w.c.server.consumed != w.c.server.position {
		t.Errorf("consumed %d of %d", w.c.server.consumed, w.c.server.position)
	}
}

func TestTap_ChunkedBeyondLimit(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	w.client("GET /big HTTP/1.1\r\n\r\n")
	w.server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	part := fmt.Sprintf("%x\r\n%s\r\n", 32<<10, bytes.Repeat([]byte("x"), 32<<10))
	for range 400 {
		w.server(part)
		if r.queued.Load() > 1<<20 {
			await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
		}
	}
	w.server("0\r\n\r\n")
	w.client("GET /next HTTP/1.1\r\n\r\n")
	w.server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	all := awaitDone(t, r, 2)
	big := all[0].Response
	if want := int64(400 * 32 << 10); big.BodySize < want || big.BodySize > want+400*16 || len(big.Body) != maxBody ||
		!big.Truncated || all[0].Lost != 0 || all[0].Error != "" {
		t.Errorf("%d of %d bytes, truncated %t, lost %d, error %q", len(big.Body), big.BodySize, big.Truncated,
			all[0].Lost,
			all[0].Error)
	}
	if string(all[1].Response.Body) != "ok" {
		t.Errorf("the next answer is %q", all[1].Response.Body)
	}
}

func TestRecorder_Filters(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	w.client("GET /a?Page=1 HTTP/1.1\r\nX-Forwarded-For: 10.0.0.7\r\n\r\n")
	w.server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nApple")
	w.client("POST /b HTTP/1.1\r\nX-Color: Teal\r\n\r\n")
	w.server("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
	w.client("GET /c HTTP/1.1\r\n\r\n")
	await(t, r, "3 requests", func() bool { return len(r.List(Filter{})) == 3 })
	first := r.List(Filter{})[2].ID
	second := r.List(Filter{})[1].ID
	for _, c := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, "/c /b /a?Page=1"}, {Filter{Limit: 2}, "/c /b"}, {Filter{Path: "page"}, "/a?Page=1"},
		{Filter{Status: "5xx"}, "/b"}, {Filter{Status: "failed"}, "/b"}, {Filter{Status: "503"}, "/b"},
		{Filter{Status: "open"}, "/c"}, {Filter{Method: "get"}, "/c /a?Page=1"},
		{Filter{Caller: "10.0.0"}, "/a?Page=1"},
		{Filter{Text: "apple"}, "/a?Page=1"}, {Filter{Text: "teal"}, "/b"}, {Filter{After: first}, "/c /b"},
		{Filter{Before: second}, "/a?Page=1"}, {Filter{Endpoint: "ep-1"}, "/c /b /a?Page=1"},
		{Filter{Endpoint: "http://api.demo"}, "/c /b /a?Page=1"}, {Filter{Endpoint: "ep-2"}, ""},
	} {
		f := c.f
		var got []string
		for _, e := range r.List(f) {
			got = append(got, e.Request.URL)
			if e.Request.Body != nil || e.Response != nil && e.Response.Body != nil {
				t.Error("a list has bodies")
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v selects %q, want %q", f, got, c.want)
		}
	}
}

// TestRecorder_ForgetsOpenExchanges checks that an exchange which has left a full list keeps
// nothing of what follows, and that the connection is read on.
func TestRecorder_ForgetsOpenExchanges(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	open, other := newWire(r, 0), newWire(r, 0)
	open.client("GET /events HTTP/1.1\r\n\r\n")
	open.server("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	await(t, r, "first exchange", func() bool { return len(r.List(Filter{Status: "200"})) == 1 })
	for range maxRecords {
		other.client("GET /other HTTP/1.1\r\n\r\n")
		other.server("HTTP/1.1 204 No Content\r\n\r\n")
	}
	await(t, r, "full list", func() bool {
		return len(r.List(Filter{Status: "204"})) == maxRecords && r.queued.Load() == 0
	})
	memory := func() int64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.memory
	}
	before := memory()
	for range 100 {
		open.server("400\r\n" + strings.Repeat("data: x\n", 127) + "\n\n\n\n\n\n\n\n\r\n")
	}
	open.server("0\r\n\r\n")
	await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
	if after := memory(); after != before {
		t.Errorf("%d bytes became %d", before, after)
	}
	open.client("GET /again HTTP/1.1\r\n\r\n")
	open.server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	await(t, r, "next exchange", func() bool { return len(r.List(Filter{Path: "/again", Status: "200"})) == 1 })
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s %s auth=%s agent=%q x=%s %s", r.Method, r.Host, r.RequestURI,
		r.Header.Get("Authorization"),
		r.Header.Get("User-Agent"), r.Header.Get("X-Other"), b)
}

// recordOne records one exchange of an endpoint whose upstream is at addr, and returns its id.
func recordOne(t *testing.T, r *Recorder, addr, sent, answered string) string {
	t.Helper()
	c := r.newConn(Info{EndpointID: "ep-1", Caller: Caller{Pod: "web-1"},
		Dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}})
	w := &wire{c: c}
	w.client(sent)
	w.server(answered)
	c.end(nil)
	return awaitDone(t, r, 1)[0].ID
}

const (
	sentRequest = "POST /a%2Fb?c=d HTTP/1.1\r\nHost: api.demo\r\nAuthorization: Bearer secret\r\nContent-Length: " +
		"4\r\n\r\nbody"
	noContent = "HTTP/1.1 204 No Content\r\n\r\n"
)

func TestReplay_RepeatsAndChanges(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(upstream.Close)
	for _, c := range []struct {
		change Change
		want   string
	}{
		{Change{}, `POST api.demo /a%2Fb?c=d auth=Bearer secret agent="" x= body`},
		{Change{Method: "PUT", Path: "/other"}, `PUT api.demo /other auth=Bearer secret agent="" x= body`},
		{Change{Body: []byte("changed")}, `POST api.demo /a%2Fb?c=d auth=Bearer secret agent="" x= changed`},
		{Change{Method: "GET", Body: []byte{},
			Header: http.Header{"Host": {"h"}, "Authorization": {Masked}, "x-other": {"y"},
				"Connection": {"upgrade"}}}, `GET h /a%2Fb?c=d auth=Bearer secret agent="" x=y `},
	} {
		r := newRecorder(t)
		id := recordOne(t, r, upstream.Listener.Addr().String(), sentRequest, noContent)
		again, err := r.Replay(t.Context(), id, c.change)
		must.Succeed(t, err)
		e, ok := r.Get(again)
		if !ok || e.ReplayOf != id || !e.Done || e.Error != "" || e.Caller != (Caller{}) || e.Response == nil ||
			string(e.Response.Body) != c.want {
			t.Errorf("%+v: got %+v %s", c.change, e, summary(e))
		}
	}
}

func TestReplay_HTTP2(t *testing.T) {
	t.Parallel()
	addr := serveHTTP2(t, echo)
	r := newRecorder(t)
	post(t, tappedClient(t, r, addr), "/a", "text/plain", "body")
	id := awaitDone(t, r, 1)[0].ID
	r.mu.Lock()
	r.records[0].info.Dial = func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	r.mu.Unlock()
	again, err := r.Replay(t.Context(), id, Change{Path: "/b"})
	must.Succeed(t, err)
	if e, _ := r.Get(again); e == nil || e.Request.Proto != "HTTP/2.0" ||
		!strings.HasPrefix(string(e.Response.Body), "POST upstream /b auth= agent=") {
		t.Errorf("got %+v", e)
	}
}

func TestReplay_RecordsFailures(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		_ = ln.Close()
	}()
	r := newRecorder(t)
	id := recordOne(t, r, ln.Addr().String(), sentRequest, noContent)
	for _, want := range []string{errUnanswered, "the upstream was not reached: dial"} {
		again, err := r.Replay(t.Context(), id, Change{})
		if err == nil {
			t.Fatal("a replay without an answer has no error")
		}
		e, ok := r.Get(again)
		if !ok || e.ReplayOf != id || !strings.HasPrefix(e.Error, want) || !e.Done || e.Request.URL != "/a%2Fb?c=d" {
			t.Errorf("got %+v, want error %s", e, want)
		}
	}
}

func TestReplay_Refuses(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	id := recordOne(t, r, "127.0.0.1:1", upgradeRequest, upgradeAnswer)
	long := newRecorder(t)
	longID := recordOne(t, long, "127.0.0.1:1",
		fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", maxBody+1, strings.Repeat("x", maxBody+1)),
		noContent)
	short := newRecorder(t)
	shortID := recordOne(t, short, "127.0.0.1:1", sentRequest, noContent)
	for name, c := range map[string]struct {
		r      *Recorder
		id     string
		change Change
		want   error
		text   string
	}{
		"unknown": {r, "x", Change{}, ErrNotFound, `exchange "x"`},
		"upgrade": {r, id, Change{}, ErrInvalid, "not a request with an answer"},
		"body": {long, longID, Change{}, ErrInvalid,
			"its body has 1048577 bytes, of which 1048576 are kept; give a body"},
		"path":        {short, shortID, Change{Path: "other"}, ErrInvalid, `path "other": must be a path`},
		"line":        {short, shortID, Change{Path: "/a HTTP/1.1\r\nX: y"}, ErrInvalid, "must be a path"},
		"masked path": {short, shortID, Change{Path: "/?token=" + Masked}, ErrInvalid, "its path holds ••••"},
		"masked body": {short, shortID, Change{Body: []byte(`{"password":"••••"}`)}, ErrInvalid,
			"its body holds"},
		"masked header": {short, shortID, Change{Header: http.Header{"X-Api-Key": {Masked}}}, ErrInvalid,
			"its header X-Api-Key holds"},
		"word": {short, shortID, Change{Method: "GET /"}, ErrInvalid, `method "GET /": must be a word`},
	} {
		if _, err := c.r.Replay(t.Context(), c.id, c.change); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReplay_LimitsConcurrency(t *testing.T) {
	t.Parallel()
	release, arrived := make(chan struct{}), make(chan struct{}, maxReplays)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	t.Cleanup(upstream.Close)
	r := newRecorder(t)
	id := recordOne(t, r, upstream.Listener.Addr().String(), sentRequest, noContent)
	errs := make(chan error, maxReplays)
	for range maxReplays {
		go func() {
			_, err := r.Replay(t.Context(), id, Change{})
			errs <- err
		}()
		<-arrived
	}
	if _, err := r.Replay(t.Context(), id, Change{}); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	close(release)
	for range maxReplays {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

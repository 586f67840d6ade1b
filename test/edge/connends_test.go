// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestEdge_AnswersHalfClosedClient(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	gone := make(chan error, 1)
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		gone <- r.Context().Err()
		_, _ = io.WriteString(w, "the answer")
	})
	for _, request := range []string{
		"GET /slow HTTP/1.1\r\nHost: hello.demo\r\n\r\n",
		"GET /slow HTTP/1.0\r\n\r\n",
		"POST /slow HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 4\r\n\r\nbody",
	} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = io.WriteString(st, request)
		must.Succeed(t, st.CloseWrite())
		for range 3 { // whole exchanges behind it on the same tunnel connection: the half-close has arrived
			if res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/quick", nil, nil); res.StatusCode != 200 {
				t.Fatalf("quick request: %d", res.StatusCode)
			}
		}
		release <- struct{}{}
		if err := servicetest.Receive(t, gone, "upstream's view"); err != nil {
			t.Errorf("%q: the upstream saw its client leave: %v", request[:13], err)
		}
		answer, err := io.ReadAll(st)
		if err != nil || !strings.HasSuffix(string(answer), "the answer") {
			t.Errorf("%q: got %q, %v", request[:13], answer, err)
		}
	}
}

func TestEdge_PassesOnBrokenOffAnswers(t *testing.T) {
	t.Parallel()
	const part = "a part of it"
	cut := make(chan struct{})
	upstream := servicetest.ServeTCP(t, func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		length := ""
		if r.URL.Path == "/length" {
			length = "Content-Length: 100\r\n"
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+length+"\r\n"+part)
		select {
		case <-cut:
		case <-t.Context().Done():
		}
		if r.URL.Path != "/length" { // only a reset tells it from a whole answer
			_ = c.SetLinger(0)
		}
	})
	p := servicetest.NewPathTo(t, servicetest.Start(t), upstream)
	for _, request := range []string{
		"GET /length HTTP/1.1\r\nHost: hello.demo\r\n\r\n",
		"GET /length HTTP/1.0\r\n\r\n",
		"GET /close HTTP/1.1\r\nHost: hello.demo\r\n\r\n",
		"GET /close HTTP/1.0\r\n\r\n",
	} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_ = st.SetReadDeadline(time.Now().Add(servicetest.MaxWait))
		_, _ = io.WriteString(st, request)
		var got bytes.Buffer
		for b := make([]byte, 512); !strings.Contains(got.String(), part); {
			n, err := st.Read(b)
			if err != nil {
				t.Fatalf("%q: %v after %q", request, err, got.String())
			}
			got.Write(b[:n])
		}
		cut <- struct{}{}
		rest, err := io.ReadAll(st)
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the client read %q and then %v, want an abort", request, rest, err)
		}
	}
}

func TestEdge_CancelsUpstreamWhenClientLeaves(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		began <- struct{}{}
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	for _, cut := range []func(*tunnel.Stream){
		func(st *tunnel.Stream) { _ = st.Reset(tunnel.Aborted) },
		func(st *tunnel.Stream) { _ = st.Session().Close() }, // the forwarder dies
	} {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = io.WriteString(st, "GET / HTTP/1.1\r\nHost: hello.demo\r\n\r\n")
		servicetest.Receive(t, began, "request")
		if _, err := st.Read(make([]byte, 1)); err != nil { // the answer's header is on its way
			t.Fatal(err)
		}
		cut(st)
		if err := servicetest.Receive(t, ended, "end of the request"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if line := servicetest.Receive(t, p.Agent.Lines, "request line"); line.Status != 200 {
			t.Errorf("request line %+v", line)
		}
	}
}

func TestEdge_ClosesIdleConnectionsOfStoppingForwarder(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	if res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil); res.Close ||
		servicetest.ReadAll(t, res.Body) != "ok" {
		t.Error("a connection was closed without need")
	}
	s, err := p.Forwarder.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	must.Succeed(t, s.Drain(0))
	// The drain message travels on another stream than the request.
	for deadline := servicetest.Context(t); ; {
		res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil)
		if servicetest.ReadAll(t, res.Body) != "ok" {
			t.Fatal("a draining forwarder's request was not served")
		}
		if res.Close {
			return
		}
		if deadline.Err() != nil {
			t.Fatal("no answer carried Connection: close")
		}
	}
}

// earlyAnswerCases are requests whose upstream answers before it has read the body.
var earlyAnswerCases = []struct {
	name, head string
	body       int // bytes that the client sends: before the answer if reusable, else after it
	reusable   bool
}{
	{"a small body", "POST /early HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 20000\r\n\r\n", 20000, true},
	{"a large body", "POST /early HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 4000000\r\n\r\n", 4000000, false},
	{"a body that never comes", "POST /early HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 20000\r\n\r\n", 0,
		false},
	{"a body that is not asked for",
		"POST /early HTTP/1.1\r\nHost: hello.demo\r\nExpect: 100-continue\r\nContent-Length: 20000\r\n\r\n", 0,
		false},
}

// readFinalAnswer returns the first answer that is not 100 Continue.
func readFinalAnswer(in *bufio.Reader) (*http.Response, error) {
	for {
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusContinue {
			return res, err
		}
	}
}

func TestEdge_EarlyAnswerKeepsOrEndsConnection(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.Header().Set("Connection", "close") // of the hop to the agent
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "next")
	})
	smuggled := bytes.Repeat([]byte("GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"), 150000)
	for _, c := range earlyAnswerCases {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_ = st.SetReadDeadline(time.Now().Add(servicetest.MaxWait))
		_, _ = io.WriteString(st, c.head)
		if c.reusable {
			_, _ = st.Write(smuggled[:c.body])
		}
		in := bufio.NewReader(st)
		res, err := readFinalAnswer(in)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %v %v", c.name, res, err)
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if c.reusable {
			_, _ = io.WriteString(st, "GET /next HTTP/1.1\r\nHost: hello.demo\r\n\r\n")
		} else {
			_, _ = st.Write(smuggled[:c.body])
		}
		expectNextAnswer(t, c.name, in, c.reusable)
	}
	for len(p.Agent.Lines) > 0 {
		if line := <-p.Agent.Lines; line.Path != "/early" && line.Path != "/next" {
			t.Errorf("a body was taken for the request %+v", line)
		}
	}
}

// expectNextAnswer checks that the next answer comes on a reusable connection, and that another one
// ends.
func expectNextAnswer(t *testing.T, name string, in *bufio.Reader, reusable bool) {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	switch {
	case reusable && err != nil:
		t.Errorf("%s: the next request: %v", name, err)
	case !reusable && err == nil:
		t.Errorf("%s: the connection went on with %d", name, res.StatusCode)
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("%s: the connection did not end", name)
	}
	if err == nil {
		if got := servicetest.ReadAll(t, res.Body); got != "next" {
			t.Errorf("%s: the next answer is %q", name, got)
		}
		_ = res.Body.Close()
	}
}

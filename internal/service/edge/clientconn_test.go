// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// The path over real tunnels is tested in test/edge. These are the rules that can be tested without
// one.

// eofClient is a client that has closed its sending side.
type eofClient struct{ net.Conn }

func (eofClient) Read([]byte) (int, error)        { return 0, io.EOF }
func (eofClient) Write(p []byte) (int, error)     { return len(p), nil }
func (eofClient) CloseWrite() error               { return nil }
func (eofClient) Accept() error                   { return nil }
func (eofClient) Refuse(tunnel.RefuseCode) error  { return nil }
func (eofClient) Reset(tunnel.RefuseCode) error   { return nil }
func (eofClient) SetReadDeadline(time.Time) error { return nil }
func (eofClient) Close() error                    { return nil }

// newAnsweredConn returns the connection of an eofClient whose request is being answered.
func newAnsweredConn() *clientConn {
	c := newClientConn(context.Background(), eofClient{}, nil, ClientInfo{})
	c.setState(http.StateActive)
	return c
}

// watchDisconnect reads as net/http does while the request is answered.
func watchDisconnect(c *clientConn) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	return got
}

func TestClientConn_ReleasesHeldEOF(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    func(*clientConn)
		want  error
		after time.Duration
	}{
		"when nothing moves for a minute": {func(*clientConn) {}, io.EOF, halfClosedIdle},
		"later when something moves": {func(c *clientConn) {
			time.Sleep(halfClosedIdle / 2)
			_, _ = c.Write([]byte("x"))
		}, io.EOF, halfClosedIdle * 3 / 2},
		"when the answer is complete": {func(c *clientConn) {
			time.Sleep(time.Second)
			c.setState(http.StateIdle)
		}, io.EOF, time.Second},
		"when the connection is closed": {func(c *clientConn) {
			time.Sleep(time.Second)
			_ = c.Close()
		}, io.EOF, time.Second},
		"at the deadline": {func(c *clientConn) {
			time.Sleep(time.Second)
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}, os.ErrDeadlineExceeded, time.Second},
		"at a later deadline": {func(c *clientConn) {
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		}, os.ErrDeadlineExceeded, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn, began := newAnsweredConn(), time.Now()
				got := watchDisconnect(conn)
				synctest.Wait()
				c.do(conn)
				if err := <-got; !errors.Is(err, c.want) || time.Since(began) != c.after {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), c.want, c.after)
				}
			})
		})
	}
}

// deadlineConn is a client that records when which deadline reached it.
type deadlineConn struct {
	eofClient
	began time.Time
	got   []string
}

func (d *deadlineConn) SetReadDeadline(t time.Time) error {
	deadline := "none"
	if !t.IsZero() {
		deadline = fmt.Sprint("past: ", !t.After(time.Now()))
	}
	d.got = append(d.got, fmt.Sprint(time.Since(d.began), " ", deadline))
	return nil
}

func after(d time.Duration) time.Time { return time.Now().Add(d) }

// readDeadlines are deadlines that net/http sets, with those that reach the client within a day.
var readDeadlines = map[string]struct {
	do   func(set func(time.Time))
	want []string
}{
	"none comes": {func(set func(time.Time)) {
		set(after(time.Minute))
		set(time.Time{})
		set(after(time.Hour))
		set(time.Time{})
	}, nil},
	"one comes": {func(set func(time.Time)) { set(after(time.Minute)) }, []string{"1m0s past: true"}},
	"a later one comes": {func(set func(time.Time)) {
		set(after(time.Minute))
		set(after(2 * time.Minute))
	}, []string{"2m0s past: true"}},
	"an earlier one": {func(set func(time.Time)) {
		set(after(time.Minute))
		set(after(time.Second))
	}, []string{"1s past: true"}},
	"put off in time": {func(set func(time.Time)) {
		set(after(time.Minute))
		time.Sleep(59 * time.Second)
		set(after(time.Minute))
	}, []string{"1m59s past: true"}},
	"one after a pause": {func(set func(time.Time)) {
		set(after(time.Second))
		set(time.Time{})
		time.Sleep(time.Minute)
		set(after(time.Second))
	}, []string{"1m1s past: true"}},
	"at once, and again": {func(set func(time.Time)) {
		set(time.Unix(1, 0))
		set(time.Time{})
		set(after(time.Second))
	}, []string{"0s past: true", "0s none", "1s past: true"}},
	"over, and again": {func(set func(time.Time)) {
		set(after(time.Second))
		time.Sleep(time.Minute)
		set(after(time.Second))
	}, []string{"1s past: true", "1m0s none", "1m1s past: true"}},
}

func TestClientConn_PassesOnlyExpiredReadDeadlines(t *testing.T) {
	t.Parallel()
	for name, c := range readDeadlines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &deadlineConn{began: time.Now()}
				conn := newClientConn(context.Background(), client, nil, ClientInfo{})
				c.do(func(at time.Time) {
					if err := conn.SetReadDeadline(at); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if !slices.Equal(client.got, c.want) {
					t.Errorf("the client got %q, want %q", client.got, c.want)
				}
			})
		})
	}
}

func TestClientConn_HoldsEOFOnlyFromDisconnectWatch(t *testing.T) {
	t.Parallel()
	c := newAnsweredConn()
	if _, err := c.Read(make([]byte, 4096)); !errors.Is(err, io.EOF) {
		t.Errorf("reading a body that breaks off: %v", err)
	}
	c.setState(http.StateIdle)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading between requests: %v", err)
	}
}

func TestWantsHTML_FollowsAccept(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/html": true, "TEXT/HTML; charset=utf-8": true,
		"application/xhtml+xml": true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
		"application/json, text/html;q=0.5":                               false,
		"text/html;q=0, */*":                                              false,
		"text/html; q=0, */*":                                             false, "text/html;q=0.5": true,
		"text/plain, text/html": true,
	} {
		if got := wantsHTML(http.Header{"Accept": {accept}}); got != want {
			t.Errorf("Accept %q: %v, want %v", accept, got, want)
		}
	}
}

func TestUpstreamHost_OfHTTP10Request(t *testing.T) {
	t.Parallel()
	ep := &account.Endpoint{Scheme: "http", Host: "hello.demo", Port: 8080, HostPort: "hello.demo:8080",
		HostMode: account.HostPassthrough}
	if got := upstreamHost(ep, ""); got != "hello.demo:8080" {
		t.Errorf("host %q", got)
	}
	ep.HostMode = account.HostRewrite // but no upstream URL is known
	if got := upstreamHost(ep, "given"); got != "given" {
		t.Errorf("host %q", got)
	}
}

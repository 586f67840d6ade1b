// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
		EndpointSettings: account.EndpointSettings{HostMode: account.HostPassthrough}}
	if got := upstreamHost(ep, ""); got != "hello.demo:8080" {
		t.Errorf("host %q", got)
	}
	ep.HostMode = account.HostRewrite // but no upstream URL is known
	if got := upstreamHost(ep, "given"); got != "given" {
		t.Errorf("host %q", got)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// upgraded is a request that a server has upgraded.
type upgraded struct {
	w        http.ResponseWriter
	ctx      context.Context
	conn     net.Conn
	buffered *bufio.ReadWriter
}

// upgrade sends a request for an upgrade with bytes behind it, and passes both ends to the test.
func upgrade(t *testing.T, behind string, handle func(u *upgraded)) (client net.Conn, in *bufio.Reader) {
	t.Helper()
	srv := startGuarded(t, func(w http.ResponseWriter, r *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		_, _ = buffered.WriteString(switching)
		if err := buffered.Flush(); err != nil {
			t.Error(err)
		}
		handle(&upgraded{w, r.Context(), c, buffered})
	})
	client, err := net.Dial("tcp", srv.Listener.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"+behind)
	in = bufio.NewReader(client)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	return client, in
}

// TestUpgradedConn_WritesNothingAfterEnd ends the session between two writes of a handler.
func TestUpgradedConn_WritesNothingAfterEnd(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(u *upgraded) error{
		"connection": func(u *upgraded) error {
			_, err := u.conn.Write([]byte("after"))
			return err
		},
		"copy": func(u *upgraded) error {
			_, err := io.Copy(u.conn, strings.NewReader("after"))
			return err
		},
		"buffer": func(u *upgraded) error {
			_, _ = u.buffered.WriteString("after")
			return u.buffered.Flush()
		},
		"half-close": func(u *upgraded) error { return u.conn.(halfCloser).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan error, 1)
			_, in := upgrade(t, "", func(u *upgraded) {
				_, _ = u.conn.Write([]byte("before"))
				endSession(u.w)
				err := write(u)
				if cause := context.Cause(u.ctx); !errors.Is(cause, ErrSessionEnded) {
					t.Errorf("its context ended because of %v", cause)
				}
				done <- err
			})
			if got, _ := io.ReadAll(in); string(got) != "before" {
				t.Errorf("the client got %q", got)
			}
			if err := <-done; !errors.Is(err, ErrSessionEnded) {
				t.Errorf("writing after the end: %v", err)
			}
		})
	}
}

// TestUpgradedConn_DropsInputAfterEnd ends the session while the handler waits for the client.
func TestUpgradedConn_DropsInputAfterEnd(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(u *upgraded) io.Reader{
		"connection": func(u *upgraded) io.Reader { return u.conn },
		"buffer":     func(u *upgraded) io.Reader { return u.buffered },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, upstream, done := make(chan func(), 1), make(chan string, 1), make(chan error, 1)
			client, in := upgrade(t, "", func(u *upgraded) {
				first := make([]byte, 5)
				_, _ = io.ReadFull(from(u), first)
				end <- func() { endSession(u.w) }
				var got strings.Builder
				_, err := io.Copy(&got, from(u))
				if err := u.conn.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
					t.Errorf("the connection is still open: %v", err)
				}
				upstream <- string(first) + got.String()
				if cause := context.Cause(u.ctx); !errors.Is(cause, ErrSessionEnded) {
					t.Errorf("its context ended because of %v", cause)
				}
				done <- err
			})
			_, _ = io.WriteString(client, "first")
			(<-end)()
			_, _ = io.WriteString(client, "second")
			_ = client.(*net.TCPConn).CloseWrite()
			if got := <-upstream; got != "first" {
				t.Errorf("the upstream got %q", got)
			}
			if err := <-done; !errors.Is(err, ErrSessionEnded) {
				t.Errorf("reading after the end: %v", err)
			}
			if got, _ := io.ReadAll(in); len(got) > 0 {
				t.Errorf("the client got %q", got)
			}
		})
	}
}

// TestUpgradedConn_KeepsReadAhead checks that bytes behind the request stay in the buffer, and that
// both directions end in order while the session lives.
func TestUpgradedConn_KeepsReadAhead(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	client, in := upgrade(t, "behind", func(u *upgraded) {
		if n := u.buffered.Reader.Buffered(); n != len("behind") {
			t.Errorf("%d bytes are buffered", n)
		}
		_, err := io.Copy(u.conn, u.buffered)
		_ = u.conn.(halfCloser).CloseWrite()
		done <- err
	})
	_, _ = io.WriteString(client, " and more")
	_ = client.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(in); err != nil || string(got) != "behind and more" {
		t.Errorf("the client got %q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Errorf("copying: %v", err)
	}
}

// endlessConn is a connection that always has input and takes any output, without half-close.
type endlessConn struct{ net.Conn }

func (endlessConn) Read(p []byte) (int, error)  { return len(p), nil }
func (endlessConn) Write(p []byte) (int, error) { return len(p), nil }
func (endlessConn) Close() error                { return nil }

func TestUpgradedConn_DoesNotAllocate(t *testing.T) {
	up := &hijackDuring{ResponseRecorder: httptest.NewRecorder(), during: func() {}, conn: endlessConn{}}
	w, _, _ := Abortable(up, httptest.NewRequest("GET", "/", nil), nil, nil)
	c, _, err := http.NewResponseController(w).Hijack()
	must.Succeed(t, err)
	if _, ok := c.(halfCloser); ok {
		t.Error("a half-close that the inner connection has not")
	}
	piece := make([]byte, 32<<10)
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Write(piece); _, _ = c.Read(piece) }); n != 0 {
		t.Errorf("%v allocations a write and a read", n)
	}
}

// TestUpgradedConn_CloseResetsAfterEnd has a handler that closes the connection before the abort
// does: the client must not take that for an orderly end.
func TestUpgradedConn_CloseResetsAfterEnd(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		resets := 0
		up := &hijackDuring{ResponseRecorder: httptest.NewRecorder(), during: func() {}, conn: endlessConn{}}
		w, _, _ := Abortable(up, httptest.NewRequest("GET", "/", nil), abortFunc(func() { resets++ }), nil)
		c, _, err := http.NewResponseController(w).Hijack()
		must.Succeed(t, err)
		if ended {
			endSession(w)
		}
		if err := c.Close(); err != nil || ended != (resets == 1) {
			t.Errorf("ended: %t: %d resets, %v", ended, resets, err)
		}
	}
}

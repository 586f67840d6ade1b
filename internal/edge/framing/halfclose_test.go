// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// eofClient is a client that has closed its sending side.
type eofClient struct{ net.Conn }

func (eofClient) Read([]byte) (int, error)        { return 0, io.EOF }
func (eofClient) Write(p []byte) (int, error)     { return len(p), nil }
func (eofClient) SetReadDeadline(time.Time) error { return nil }
func (eofClient) Close() error                    { return nil }

// newAnsweredConn returns the connection of an eofClient whose request is being answered.
func newAnsweredConn() *Conn {
	c := New(eofClient{}, Options{})
	c.stopHeadTimer()
	c.SetState(http.StateActive)
	return c
}

// watchDisconnect reads as net/http does while the request is answered.
func watchDisconnect(c *Conn) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	return got
}

func TestConn_ReleasesHeldEOF(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    func(*Conn)
		want  error
		after time.Duration
	}{
		"when nothing moves for a minute": {func(*Conn) {}, io.EOF, halfClosedIdle},
		"later when something moves": {func(c *Conn) {
			time.Sleep(halfClosedIdle / 2)
			_, _ = c.Write([]byte("x"))
		}, io.EOF, halfClosedIdle * 3 / 2},
		"when the answer is complete": {func(c *Conn) {
			time.Sleep(time.Second)
			c.SetState(http.StateIdle)
		}, io.EOF, time.Second},
		"when the connection is closed": {func(c *Conn) {
			time.Sleep(time.Second)
			_ = c.Close()
		}, io.EOF, time.Second},
		"at the deadline": {func(c *Conn) {
			time.Sleep(time.Second)
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}, os.ErrDeadlineExceeded, time.Second},
		"at a later deadline": {func(c *Conn) {
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

func TestConn_HoldsEOFOnlyFromDisconnectWatch(t *testing.T) {
	t.Parallel()
	c := newAnsweredConn()
	if _, err := c.Read(make([]byte, 4096)); !errors.Is(err, io.EOF) {
		t.Errorf("reading a body that breaks off: %v", err)
	}
	c.SetState(http.StateIdle)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading between requests: %v", err)
	}
}

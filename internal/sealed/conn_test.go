// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// pairs returns functions by name that make a sealed connection through an honest service.
func pair(t testing.TB) ends {
	t.Helper()
	owner := newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	return newWorld(t).mustConnect(t, owner.trust(t), as, honest)
}

func TestConn_MovesBothWaysAndHalfCloses(t *testing.T) {
	t.Parallel()
	e := pair(t)
	payload := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB
	var moving sync.WaitGroup
	for _, c := range []*sealed.Conn{e.forwarder, e.agent} {
		moving.Go(func() {
			if _, err := c.Write(payload); err != nil {
				t.Error(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		moving.Go(func() {
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, payload) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		})
	}
	moving.Wait()
	for _, c := range []*sealed.Conn{e.forwarder, e.agent} {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // never wrapped
			t.Errorf("after the end: %v", err)
		}
		must.Succeed(t, c.Close())
	}
}

func TestConn_HalfClosesOneWay(t *testing.T) {
	t.Parallel()
	e := pair(t)
	for name, c := range map[string][2]*sealed.Conn{"forwarder": {e.forwarder, e.agent}} {
		must.Succeed(t, c[0].CloseWrite())
		if _, err := c[1].Next(); err != io.EOF { //nolint:errorlint // never wrapped
			t.Fatalf("%s: %v", name, err)
		}
		_, err := c[1].Write([]byte("answer"))
		must.Succeed(t, err)
		if got, err := c[0].Next(); string(got) != "answer" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestConn_AbortIsNoEnd(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(ends) [2]*sealed.Conn{
		"forwarder": func(e ends) [2]*sealed.Conn { return [2]*sealed.Conn{e.forwarder, e.agent} },
		"agent":     func(e ends) [2]*sealed.Conn { return [2]*sealed.Conn{e.agent, e.forwarder} },
	} {
		for how, end := range map[string]func(*sealed.Conn) error{
			"Abort": (*sealed.Conn).Abort, "Close": (*sealed.Conn).Close,
			"CloseWrite, Close": func(c *sealed.Conn) error { return errors.Join(c.CloseWrite(), c.Close()) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				c := from(pair(t))
				_, err := c[0].Write([]byte("last bytes"))
				must.Succeed(t, err)
				must.Succeed(t, end(c[0]))
				got, err := io.ReadAll(c[1])
				if how != "CloseWrite, Close" && !errors.Is(err, syscall.ECONNRESET) || string(got) != "last bytes" {
					t.Errorf("read %q, %v", got, err)
				}
				for err = nil; err == nil; {
					_, err = c[1].Write(make([]byte, 1<<10))
				}
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("writing: %v", err)
				}
			})
		}
	}
}

// A peer that does not read for long must still get the end of what was written.
func TestConn_CloseWriteWaitsForSlowReader(t *testing.T) {
	t.Parallel()
	e := pair(t)
	must.Succeed(t, e.forwarder.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	var err error
	for err == nil {
		_, err = e.forwarder.Write(make([]byte, 1<<20))
	}
	if _, again := e.forwarder.Write([]byte{1}); again == nil {
		t.Errorf("after %v a write succeeded", err)
	}
}

var _ sealed.Below = (*tunnel.Stream)(nil)

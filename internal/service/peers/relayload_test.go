// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestMember_RelaysLargeBodiesBothWays(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	st := open(t, asks.choose(t))
	const size = 32 << 20
	source := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), size) }
	go func() {
		if _, err := io.Copy(struct{ io.Writer }{st}, source()); err == nil {
			_ = st.CloseWrite()
		}
	}()
	want, got := sha256.New(), sha256.New()
	_, _ = io.Copy(want, source())
	if n, err := io.Copy(got, struct{ io.Reader }{st}); err != nil || n != size ||
		!bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes came back, %v", n, err)
	}
}

func TestMember_RelaysManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	m := asks.choose(t)
	const streams = 1000
	opening := make(chan struct{}, 50) // all at once keep a busy machine from answering within a second
	var all, opened sync.WaitGroup
	opened.Add(streams)
	for i := range streams {
		all.Go(func() {
			opening <- struct{}{}
			st, err := m.Open(t.Context(), tunnel.OpenHeader{EndpointID: "ep-1", BytesFollow: true})
			if err != nil {
				<-opening
				opened.Done()
				t.Error(err)
				return
			}
			defer func() { _ = st.Close() }()
			text := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 100)
			_, _ = st.Write(text)
			got := make([]byte, len(text))
			_, err = io.ReadFull(st, got)
			<-opening
			opened.Done()
			opened.Wait() // all are open together
			_ = st.CloseWrite()
			rest, end := io.ReadAll(struct{ io.Reader }{st})
			if err != nil || !bytes.Equal(got, text) || end != nil || len(rest) > 0 {
				t.Errorf("stream %d: %v %v", i, err, end)
			}
		})
	}
	all.Wait()
}

// stoppedConn is a connection whose reads wait while it is stopped, like those of a stopped
// process.
type stoppedConn struct {
	net.Conn
	stopped *sync.RWMutex
}

func (c stoppedConn) Read(b []byte) (int, error) {
	c.stopped.RLock()
	defer c.stopped.RUnlock()
	n, err := c.Conn.Read(b)
	c.stopped.RUnlock()
	c.stopped.RLock() // what was read while it is stopped waits, too
	return n, err
}

func TestMember_RefusesForUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	asks, holds := c.start("rp-1"), c.start("rp-2")
	stopped := new(sync.RWMutex)
	unanswered := func(st *tunnel.Stream) { _, _ = io.Copy(io.Discard, struct{ io.Reader }{st}) }
	holds.local.add(testHolder("ep-1"), agentSessionOver(t, unanswered, func(c net.Conn) net.Conn {
		return stoppedConn{c, stopped}
	}))
	c.linked(asks, holds)
	m := asks.choose(t)
	stopping := make(chan struct{})
	go func() { stopped.Lock(); close(stopping) }()
	defer func() { <-stopping; stopped.Unlock() }()
	began := time.Now()
	st := open(t, m)
	send(t, st, "x")
	_, err := st.Read(make([]byte, 1))
	if !errors.Is(err, tunnel.ErrUnresponsive) || time.Since(began) > 10*time.Second {
		t.Errorf("error %v after %v", err, time.Since(began))
	}
}

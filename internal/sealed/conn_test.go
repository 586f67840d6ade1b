// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func fromForwarder(e ends) [2]*sealed.Conn { return [2]*sealed.Conn{e.forwarder, e.agent} }
func fromAgent(e ends) [2]*sealed.Conn     { return [2]*sealed.Conn{e.agent, e.forwarder} }

// pair returns a sealed connection through an honest service.
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

// A pod and an upstream with sockets, joined by the relay at both ends.
func TestConn_RelaysSockets(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		upstream func(*net.TCPConn) error
		aborted  bool
	}{
		"ends":   {(*net.TCPConn).Close, false},
		"aborts": {func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := pair(t)
			pod, podEnd := tcpPair(t)
			upstreamEnd, upstream := tcpPair(t)
			var joined sync.WaitGroup
			for _, ends := range [2][2]relay.HalfCloser{{podEnd, e.forwarder}, {e.agent, upstreamEnd}} {
				joined.Go(func() {
					_, err := relay.Join(t.Context(), ends[0], ends[1], relay.Options{})
					if (err != nil) != end.aborted {
						t.Errorf("the relay returned %v", err)
					}
				})
			}
			_, err := pod.Write([]byte("question"))
			must.Succeed(t, err)
			must.Succeed(t, pod.CloseWrite())
			question, err := io.ReadAll(upstream)
			must.Succeed(t, err)
			_, err = upstream.Write([]byte("answer"))
			must.Succeed(t, err)
			got := make([]byte, 6)
			_, err = io.ReadFull(pod, got)
			must.Succeed(t, err)
			must.Succeed(t, end.upstream(upstream))
			_, err = io.ReadAll(pod)
			if string(question)+string(got) != "questionanswer" || errors.Is(err, syscall.ECONNRESET) != end.aborted {
				t.Errorf("%q, %q, %v", question, got, err)
			}
			joined.Wait()
		})
	}
}

// tcpPair returns the ends of a TCP connection.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	near, err := net.Dial("tcp", l.Addr().String())
	must.Succeed(t, err)
	far, err := l.Accept()
	must.Succeed(t, err)
	t.Cleanup(func() { _, _, _ = near.Close(), far.Close(), l.Close() })
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

func TestConn_HalfClosesOneWay(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(ends) [2]*sealed.Conn{"forwarder": fromForwarder, "agent": fromAgent} {
		c := of(pair(t))
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
	for name, of := range map[string]func(ends) [2]*sealed.Conn{"forwarder": fromForwarder, "agent": fromAgent} {
		for how, end := range map[string]func(*sealed.Conn) error{
			"Abort": (*sealed.Conn).Abort, "Close": (*sealed.Conn).Close,
			"CloseWrite, Close": func(c *sealed.Conn) error { return errors.Join(c.CloseWrite(), c.Close()) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				c := of(pair(t))
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

// pipe is one end of a connection in memory with half-close, whose writes wait for a read.
type pipe struct {
	net.Conn               // reads
	in       *bufio.Reader // takes all that one write sends
	out      net.Conn      // writes
}

func newPipe() (a, b *pipe) {
	aReads, bWrites := net.Pipe()
	bReads, aWrites := net.Pipe()
	return &pipe{aReads, bufio.NewReaderSize(aReads, 64<<10), aWrites},
		&pipe{bReads, bufio.NewReaderSize(bReads, 64<<10), bWrites}
}

func (p *pipe) Read(b []byte) (int, error)         { return p.in.Read(b) }
func (p *pipe) Write(b []byte) (int, error)        { return p.out.Write(b) }
func (p *pipe) WriteLater(b []byte) (int, error)   { return p.Write(b) }
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.out.SetWriteDeadline(t) }
func (p *pipe) CloseWrite() error                  { return p.out.Close() }
func (p *pipe) Close() error                       { return errors.Join(p.out.Close(), p.Conn.Close()) }
func (p *pipe) Abort() error                       { return p.Close() }

// A peer that reads late must still get the end: crypto/tls alone gives it up after 5 s.
func TestConn_CloseWriteWaitsForSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owner := newAuthority(t)
		as, _ := identity(t, owner.sign(t, nil))
		forwarder, agent := newPipe()
		e := connect(t, forwarder, agent, owner.trust(t), as, sealed.Header{URL: endpoint})
		must.Succeed(t, errors.Join(e.forwarderErr, e.agentErr))
		written := make(chan error, 1)
		go func() {
			_, err := e.forwarder.Write([]byte("late"))
			written <- errors.Join(err, e.forwarder.CloseWrite())
		}()
		time.Sleep(time.Minute)
		p, err := e.agent.Next()
		must.Succeed(t, err)
		first := string(p)
		time.Sleep(time.Minute)
		rest, err := io.ReadAll(e.agent)
		if first != "late" || len(rest) > 0 || err != nil {
			t.Errorf("read %q, %q, %v", first, rest, err)
		}
		must.Succeed(t, <-written)
		must.Succeed(t, e.agent.Abort())
		must.Succeed(t, e.forwarder.Abort())
	})
}

// A deadline may pass before a record and within one.
func TestConn_ReadsAgainAfterTimeout(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	var armed atomic.Bool
	release := make(chan struct{})
	forwarder, agent := w.open(t, relayWith(toAgent, func(to, from *tunnel.Stream) error {
		return editRecords(func(record []byte) []byte {
			if armed.CompareAndSwap(true, false) {
				_, _ = to.Write(record[:10])
				<-release
				return record[10:]
			}
			return record
		})(to, from)
	}))
	e := connect(t, forwarder, agent, owner.trust(t), as, sealed.Header{URL: endpoint})
	must.Succeed(t, errors.Join(e.forwarderErr, e.agentErr))
	timeOut := func() {
		must.Succeed(t, e.agent.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := e.agent.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	timeOut()
	armed.Store(true)
	_, err := e.forwarder.Write([]byte("later"))
	must.Succeed(t, err)
	must.Succeed(t, e.forwarder.CloseWrite())
	wait.Until(t, "a part of the record", func() bool { return agent.Buffered() == 10 })
	timeOut()
	timeOut()
	close(release)
	must.Succeed(t, e.agent.SetDeadline(time.Time{}))
	b := make([]byte, 2)
	_, err = io.ReadFull(e.agent, b)
	must.Succeed(t, err)
	if rest, err := e.agent.Next(); string(b)+string(rest) != "later" || err != nil {
		t.Errorf("read %q and %q, %v", b, rest, err)
	}
	if p, err := e.agent.Next(); err != io.EOF { //nolint:errorlint // never wrapped
		t.Errorf("at the end: %q, %v", p, err)
	}
}

// What a pair holds after bulk, with the streams below it, is what many idle connections cost.
func TestConn_IdlePairIsSmall(t *testing.T) { //nolint:paralleltest // it measures the heap
	const pairs, limit = 32, 100_000
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	to := owner.trust(t)
	w.mustConnect(t, to, as, honest)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // empties pools
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := heap()
	for now := heap(); now < before; now = heap() { // what earlier tests have left ends
		before = now
	}
	all := make([]ends, pairs)
	for i := range all {
		all[i] = w.mustConnect(t, to, as, honest)
		move(t, all[i].forwarder, all[i].agent)
		move(t, all[i].agent, all[i].forwarder)
		for _, c := range []*sealed.Conn{all[i].forwarder, all[i].agent} {
			go func() { _, _ = c.Next() }() // an idle reader
		}
	}
	each := (heap() - before) / pairs
	t.Logf("%d bytes for each idle pair and its two pairs of streams", each)
	if each > limit {
		t.Errorf("an idle pair holds %d bytes, at most %d", each, limit)
	}
	runtime.KeepAlive(all)
}

// move moves 1 MiB.
func move(t testing.TB, from, to *sealed.Conn) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() {
		for range 16 {
			if _, err := from.Write(make([]byte, 64<<10)); err != nil {
				t.Error(err)
			}
		}
	})
	for left := 1 << 20; left > 0; {
		p, err := to.Next()
		must.Succeed(t, err)
		left -= len(p)
	}
	writing.Wait()
}

// frames is a stream that records what is written to it.
type frames struct {
	*tunnel.Stream
	now, later []int
}

func (f *frames) Write(p []byte) (int, error) {
	f.now = append(f.now, len(p))
	return f.Stream.Write(p)
}

func (f *frames) WriteLater(p []byte) (int, error) {
	f.later = append(f.later, len(p))
	return f.Stream.WriteLater(p)
}

// What the relay reads at once makes one frame of the multiplexer, which is four records below.
func TestConn_LargeWriteIsOneFrame(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	forwarder, agent := w.open(t, honest)
	below := &frames{Stream: forwarder}
	e := connect(t, below, agent, owner.trust(t), as, sealed.Header{URL: endpoint})
	must.Succeed(t, errors.Join(e.forwarderErr, e.agentErr))
	below.now, below.later = nil, nil
	move(t, e.forwarder, e.agent)
	if len(below.now) != 16 || slices.Max(below.now) != 64<<10 || len(below.later) != 16 || below.later[0] != 88 {
		t.Errorf("16 writes of 64 KiB became %d and %d later", below.now, below.later)
	}
	must.Succeed(t, forwarder.Abort())
	for range 2 {
		if _, err := e.forwarder.Write(make([]byte, 64<<10)); err == nil {
			t.Error("a write to an aborted stream succeeded")
		}
	}
}

var _ sealed.Below = (*tunnel.Stream)(nil)

// TestConn_NothingPassesBesideIt holds that no method of a connection is that of the stream below, which
// sends or reads what is not sealed. Others look for more methods than net.Conn has.
func TestConn_NothingPassesBesideIt(t *testing.T) {
	t.Parallel()
	inside := []string{"Read", "Next", "Write", "CloseWrite", "Close"}
	passOn := []string{"Abort", "LocalAddr", "RemoteAddr", "SetDeadline", "SetReadDeadline", "SetWriteDeadline"}
	facts := []string{"Peer", "Resumed"}
	for m := range reflect.TypeFor[*sealed.Conn]().Methods() {
		if !slices.Contains(slices.Concat(inside, passOn, facts), m.Name) {
			t.Errorf("%s: does it pass bytes beside the seal?", m.Name)
		}
	}
}

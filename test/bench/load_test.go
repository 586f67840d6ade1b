// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The sizes and durations of the suite under load, which `make soak` raises by the environment.
var (
	loadBytes = fromEnv("FAIRLEAD_LOAD_MIB", usualMiB) << 20
	loadShort = time.Duration(fromEnv("FAIRLEAD_LOAD_SHORT_SECONDS", 2)) * time.Second
	loadChurn = time.Duration(fromEnv("FAIRLEAD_LOAD_CHURN_SECONDS", 2)) * time.Second
)

func fromEnv(name string, usual int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return usual
}

const (
	sourceBytes = 8 << 20 // what a source sends
	patient     = 5 * time.Minute
)

// loadRig is a chain whose upstream does what the first byte of a connection asks for; ends
// receives what it read, and how that ended.
type loadRig struct {
	*chain
	ends chan upstreamEnd
}

type upstreamEnd struct {
	got []byte
	err error
}

func newLoadRig(t *testing.T) *loadRig {
	t.Helper()
	r := &loadRig{ends: make(chan upstreamEnd, 10)}
	addr, err := listen(r.upstream)
	must.Succeed(t, err)
	r.chain = startChain(t, ours, "", upstreams{tcp: addr, http: "http://" + addr})
	return r
}

func (r *loadRig) upstream(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	var order [1]byte
	if _, err := io.ReadFull(c, order[:]); err != nil {
		return
	}
	switch order[0] {
	case 'e': // echo
		_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	case 'f': // is done first
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		r.ends <- upstreamEnd{got, err}
	case 'a': // aborts
		_, _ = io.WriteString(c, "half of")
		_, _ = io.ReadFull(c, order[:])
		_ = c.SetLinger(0)
	case 'w': // waits
		_, _ = io.WriteString(c, "k")
		got, err := io.ReadAll(c)
		r.ends <- upstreamEnd{got, err}
	case 's': // a source, of the bytes that stream makes
		_, _ = io.Copy(c, stream(1, sourceBytes))
	}
}

// stream returns n pseudorandom bytes of a seed.
func stream(seed byte, n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n) }

func digest(t testing.TB, r io.Reader) [sha256.Size]byte {
	h := sha256.New()
	if _, err := io.Copy(h, struct{ io.Reader }{r}); err != nil {
		t.Errorf("reading: %v", err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// dialWithOrder connects and gives the order.
func (r *loadRig) dialWithOrder(t testing.TB, order string) *net.TCPConn {
	c, err := net.DialTimeout("tcp", r.tcp, patient)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(max(patient, 2*loadShort, 2*loadChurn, time.Duration(loadBytes/1e6)*time.Second)))
	if _, err := io.WriteString(c, order); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// waitingConn returns a connection whose upstream waits for its end.
func (r *loadRig) waitingConn(t testing.TB) *net.TCPConn {
	c := r.dialWithOrder(t, "whalf of")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// checkEcho sends n bytes to the echo and compares what comes back, up to the end.
func (r *loadRig) checkEcho(t testing.TB, n int64) {
	c := r.dialWithOrder(t, "e")
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		if _, err := io.Copy(struct{ io.Writer }{c}, stream(2, n)); err != nil {
			t.Errorf("sending: %v", err)
		}
		_ = c.CloseWrite()
	})
	if digest(t, c) != digest(t, stream(2, n)) {
		t.Errorf("of %d bytes, others came back", n)
	}
	_ = c.Close()
}

func TestChain_UnderLoad(t *testing.T) {
	r := newLoadRig(t)
	t.Run("the client is done first", func(t *testing.T) { r.checkEcho(t, 1<<20) })
	t.Run("the upstream is done first", func(t *testing.T) {
		c := r.dialWithOrder(t, "f")
		if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
			t.Fatalf("read %q, %v", b, err)
		}
		sent, _ := io.ReadAll(stream(3, 1<<20))
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
		if end := <-r.ends; end.err != nil || !bytes.Equal(end.got, sent) {
			t.Errorf("%d bytes arrived after the half-close: %v", len(end.got), end.err)
		}
	})
	t.Run("the upstream aborts", func(t *testing.T) {
		c := r.dialWithOrder(t, "a")
		if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "x")
		if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("an abort looks like %d bytes, %v", n, err)
		}
	})
	t.Run("the client aborts", func(t *testing.T) {
		c := r.waitingConn(t)
		_ = c.SetLinger(0)
		_ = c.Close()
		if end := <-r.ends; end.err == nil {
			t.Errorf("an abort looks like an end after %q", end.got)
		}
	})
	t.Run("slow readers", r.slowReaders)
	t.Run("short connections", func(t *testing.T) {
		for began, n := time.Now(), 0; n == 0 || time.Since(began) < loadShort; n++ {
			must.Succeed(t, inParallel(2*concurrent, concurrent, func() error { return r.short() }))
		}
	})
	t.Run("every byte", func(t *testing.T) { r.checkEcho(t, loadBytes) })
	t.Run("churn", r.churn)
}

// short is a connection of 64 bytes there and back.
func (r *loadRig) short() error {
	c, err := net.DialTimeout("tcp", r.tcp, patient)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patient))
	buf := make([]byte, requestSize)
	if _, err := c.Write(append([]byte{'e'}, buf...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if n, err := c.Read(buf); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("no end after "+strconv.Itoa(n)+" bytes"), err)
	}
	return nil
}

// slowReaders: eight take nothing for as long as 63 others are served, and get everything in the
// end.
func (r *loadRig) slowReaders(t *testing.T) {
	var slow []*net.TCPConn
	for range 8 {
		slow = append(slow, r.dialWithOrder(t, "s"))
	}
	var fast sync.WaitGroup
	for range 63 {
		fast.Go(func() { r.checkEcho(t, 1<<20) })
	}
	fast.Wait()
	want := digest(t, stream(1, sourceBytes))
	for i, c := range slow {
		if digest(t, c) != want {
			t.Errorf("slow reader %d got other bytes", i)
		}
	}
}

// churn: connections come, talk, end in all ways and go. What the processes hold stays.
func (r *loadRig) churn(t *testing.T) {
	round := func() {
		must.Succeed(t, inParallel(500, 50, r.short))
		for _, order := range []string{"a", "e", "half"} {
			for range 20 {
				c := r.dialWithOrder(t, order)
				_ = c.SetLinger(0)
				_ = c.Close()
			}
		}
	}
	round()
	before := map[string]resourceUse{}
	for _, p := range r.parts {
		before[p.part] = r.awaitSettled(t, p, resourceUse{})
	}
	for began, n := time.Now(), 0; n == 0 || time.Since(began) < loadChurn; n++ {
		round()
	}
	for _, p := range r.parts {
		was := before[p.part]
		if h := r.awaitSettled(t, p, was); h.exceeds(was) {
			t.Errorf("the %s holds %+v, and %+v before", p.part, h, was)
		} else {
			t.Logf("the %s holds %+v, and %+v before", p.part, h, was)
		}
	}
}

// exceeds leaves room for connections of the sessions, which come and go with the load: each has a
// descriptor and a handful of goroutines.
func (h resourceUse) exceeds(was resourceUse) bool {
	return h.descriptors > was.descriptors+20 || h.goroutines > was.goroutines+200 || h.heap > was.heap+16<<20
}

// awaitSettled returns what a process holds once that does not exceed what it was, or after a
// while; before anything is known, once it does not get less.
func (r *loadRig) awaitSettled(t *testing.T, p *process, was resourceUse) resourceUse {
	t.Helper()
	h := p.resourceUse(t)
	for range 100 {
		if was != (resourceUse{}) && !h.exceeds(was) {
			return h
		}
		time.Sleep(100 * time.Millisecond)
		next := p.resourceUse(t)
		if was == (resourceUse{}) && next.goroutines >= h.goroutines && next.descriptors >= h.descriptors {
			return next
		}
		h = next
	}
	return h
}

// TestChain_KilledHopIsNoEOF checks that a process that is killed leaves aborted connections on
// both sides of the chain, and none that looks finished.
func TestChain_KilledHopIsNoEOF(t *testing.T) {
	for i, part := range []string{"edge", "agent", "forwarder"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			r := newLoadRig(t)
			reading, writing := r.dialWithOrder(t, "s"), r.waitingConn(t)
			half := r.dialWithOrder(t, "f") // its upstream has ended its direction already
			if b, err := io.ReadAll(half); err != nil || string(b) != "bye" {
				t.Fatalf("read %q, %v", b, err)
			}
			if _, err := io.ReadFull(reading, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, r.parts[i].cmd.Process.Kill())
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{reading}); err == nil {
				t.Errorf("the client read an end after %d bytes of %d", n+1<<20, sourceBytes)
			}
			for range 2 {
				if end := <-r.ends; end.err == nil {
					t.Errorf("the upstream read an end after %q", end.got)
				}
			}
			_, _ = writing.Close(), half.Close()
		})
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// withSessions runs a test with two sessions over a pipe, in a synctest bubble.
func withSessions(t *testing.T, limit int, cfg mux.Config, f func(t *testing.T, client, server *mux.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, server := newSessionPair(t, limit, cfg)
		f(t, client, server)
	})
}

func TestStream_HalfClosesBothWays(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for _, from := range []*mux.Session{client, server} {
			to := server
			if from == server {
				to = client
			}
			a, b := openStream(t, from, to, "hello ")
			_, err := a.Write([]byte("world"))
			noError(t, "Write", err)
			noError(t, "CloseWrite", a.CloseWrite())
			if got, err := io.ReadAll(b); err != nil || string(got) != "hello world" {
				t.Errorf("read %q, %v", got, err)
			}
			startCall("Read after the end", read(b)).wantError(t, io.EOF)
			startCall("Write after CloseWrite", write(a, []byte("x"))).wantError(t, net.ErrClosed)

			answer := startCall("Read of the answer", read(a))
			answer.wantBlocked(t)
			_, err = b.Write([]byte("well"))
			noError(t, "Write after the peer's CloseWrite", err)
			if n, err := answer.wantResult(t); n != 4 || err != nil {
				t.Errorf("the answer: %d bytes, %v", n, err)
			}
			noError(t, "CloseWrite", b.CloseWrite())
			startCall("Read after the end", read(a)).wantError(t, io.EOF) // at once: who closed first waits for this
			a.Release()
			b.Release()
		}
		synctest.Wait()
		if n, m := client.NumStreams(), server.NumStreams(); n != 0 || m != 0 {
			t.Errorf("%d and %d streams remain", n, m)
		}
	})
}

func TestSession_StreamIDs(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for i := range uint32(3) {
			a, _ := openStream(t, client, server, "")
			b, _ := openStream(t, server, client, "")
			if a.ID() != 2*i+1 || b.ID() != 2*i+2 {
				t.Errorf("streams %d and %d, want %d and %d", a.ID(), b.ID(), 2*i+1, 2*i+2)
			}
		}
		if n, m := client.NumStreams(), server.NumStreams(); n != 6 || m != 6 {
			t.Errorf("%d and %d streams, want 6", n, m)
		}
	})
}

func TestStream_NextLendsUntilNextCall(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		sent := randomBytes(1, 200<<10)
		c := startCall("Write", write(a, sent))
		if n, err := c.wantResult(t); n != len(sent) || err != nil {
			t.Fatal(n, err)
		}
		var got []byte
		for len(got) < len(sent) {
			p, err := b.Next()
			noError(t, "Next", err)
			if len(p) == 0 {
				t.Fatal("Next gave nothing")
			}
			first := bytes.Clone(p)
			// Whatever arrives meanwhile must not touch what was handed out.
			_, err = a.Write(randomBytes(2, 1000))
			noError(t, "Write", err)
			synctest.Wait()
			if !bytes.Equal(p, first) {
				t.Fatal("bytes of Next changed before the next call")
			}
			sent = append(sent, randomBytes(2, 1000)...)
			got = append(got, p...)
			if len(got) < 200<<10 {
				got = append(got, readFull(t, b, 1000)...) // Read and Next take turns
			}
			if len(got) > 1<<20 {
				t.Fatal("more was read than written")
			}
			if len(got) > 200<<10 {
				break
			}
		}
		noError(t, "CloseWrite", a.CloseWrite())
		rest, err := io.ReadAll(b)
		noError(t, "reading the rest", err)
		if !bytes.Equal(append(got, rest...), sent) {
			t.Error("what was read is not what was sent")
		}
		if p, err := b.Next(); err != io.EOF || len(p) != 0 { //nolint:errorlint // the contract says: bare
			t.Errorf("Next at the end: %d bytes, %v", len(p), err)
		}
	})
}

func TestStream_NextUpdatesWindow(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		sent := randomBytes(12, 3<<20)
		c := startCall("Write", write(a, sent))
		for rest := sent; len(rest) > 0; {
			p, err := b.Next()
			noError(t, "Next", err)
			if !bytes.HasPrefix(rest, p) {
				t.Fatal("what was read is not what was sent")
			}
			rest = rest[len(p):]
		}
		c.wantError(t, nil)
	})
}

func TestStream_SmallReads(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		sent := randomBytes(3, 3000)
		a, b := openStream(t, client, server, string(sent[:100]))
		for p := sent[100:]; len(p) > 0; p = p[min(len(p), 700):] {
			_, err := a.Write(p[:min(len(p), 700)])
			noError(t, "Write", err)
		}
		noError(t, "CloseWrite", a.CloseWrite())
		var got []byte
		for p := make([]byte, 7); ; {
			n, err := b.Read(p)
			got = append(got, p[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			noError(t, "Read", err)
			if n == 0 {
				t.Fatal("Read gave nothing and no error")
			}
		}
		if !bytes.Equal(got, sent) {
			t.Error("what was read is not what was sent")
		}
		if n, err := b.Read(nil); n != 0 || (err != nil && !errors.Is(err, io.EOF)) {
			t.Errorf("Read(nil) at the end: %d, %v", n, err)
		}
	})
}

func TestStream_WritesNothing(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		if n, err := a.Write(nil); n != 0 || err != nil {
			t.Errorf("Write(nil) = %d, %v", n, err)
		}
		startCall("Read", func() (int, error) {
			if _, err := a.Write([]byte("x")); err != nil {
				return 0, err
			}
			return b.Read(make([]byte, 2))
		}).wantError(t, nil)
	})
}

func TestStream_WriteWaitsForWindow(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		a, b := openStream(t, client, server, "")
		sent := randomBytes(4, 3<<20)
		c := startCall("Write beyond every window", write(a, sent))
		c.wantBlocked(t)
		// Another stream is not held up, nor is the way back.
		d, e := openStream(t, client, server, "small")
		if got := readFull(t, e, 5); string(got) != "small" {
			t.Errorf("read %q", got)
		}
		_, err := b.Write([]byte("back"))
		noError(t, "Write", err)
		readFull(t, a, 4)
		if err := d.Reset(0); err != nil {
			t.Error("Reset:", err)
		}
		if got := readFull(t, b, len(sent)); !bytes.Equal(got, sent) {
			t.Error("what was read is not what was sent")
		}
		if n, err := c.wantResult(t); n != len(sent) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	})
}

func TestStream_ResetReachesBothEnds(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for i, code := range []uint32{0, 1, 7, 1 << 31, 1<<32 - 1} {
			a, b := openStream(t, client, server, "")
			if i%2 == 1 {
				a, b = b, a // who accepted resets
			}
			mine, theirs := startCall("Read", read(a)), startCall("the peer's Read", read(b))
			full, theirFull := startCall("Write", write(a, make([]byte, 2<<20))),
				startCall("the peer's Write", write(b, make([]byte, 2<<20)))
			// The reads above get bytes: they are over, and the next ones too until the windows are
			// full.
			full.wantBlocked(t)
			theirFull.wantBlocked(t)
			mine.wantError(t, nil)
			theirs.wantError(t, nil)
			noError(t, "Reset", a.Reset(code))
			full.wantError(t, net.ErrClosed)
			_, err := theirFull.wantResult(t)
			wantReset(t, "the peer's Write", err, code)
			startCall("Read after Reset", read(a)).wantError(t, net.ErrClosed)
			startCall("Write after Reset", write(a, []byte("x"))).wantError(t, net.ErrClosed)
			if _, err := a.Next(); err != net.ErrClosed { //nolint:errorlint // the contract says: bare
				t.Errorf("Next after Reset: %v", err)
			}
			_, err = io.Copy(io.Discard, b) // bytes that were there may come first
			wantReset(t, "the peer's Read", err, code)
			_, err = b.Next()
			wantReset(t, "the peer's Next", err, code)
			_, err = b.Write([]byte("x"))
			wantReset(t, "the peer's Write again", err, code)
			noError(t, "Reset again", a.Reset(code+1))
			a.Release()
			b.Release()
		}
		synctest.Wait()
		if n, m := client.NumStreams(), server.NumStreams(); n != 0 || m != 0 {
			t.Errorf("%d and %d streams remain", n, m)
		}
	})
}

// TestStream_ReadsBytesBeforeReset checks that the reset of the peer overtakes none of its
// bytes, and is never taken for an end; this side's own reset discards them.
func TestStream_ReadsBytesBeforeReset(t *testing.T) {
	t.Parallel()
	withSessions(t, 0, mux.Config{}, func(t *testing.T, client, server *mux.Session) {
		for _, own := range []bool{false, true} {
			a, b := openStream(t, client, server, "")
			sent := randomBytes(5, 100<<10)
			_, err := a.Write(sent)
			noError(t, "Write", err)
			noError(t, "Reset", a.Reset(7))
			synctest.Wait()
			if own {
				b.Release()
				startCall("Read after Release", read(b)).wantResult(t)
				if n := b.Buffered(); n != 0 {
					t.Errorf("%d bytes are kept", n)
				}
				continue
			}
			got := readFull(t, b, 100)
			for len(got) < len(sent) {
				p, err := b.Next()
				noError(t, "Next", err)
				got = append(got, p...)
			}
			if !bytes.Equal(got, sent) {
				t.Error("what was read is not what was sent")
			}
			_, err = b.Next()
			wantReset(t, "Next", err, 7)
			_, err = b.Read(make([]byte, 1))
			wantReset(t, "Read", err, 7)
			a.Release()
			b.Release()
		}
		synctest.Wait()
		if n, m := client.NumStreams(), server.NumStreams(); n != 0 || m != 0 {
			t.Errorf("%d and %d streams remain", n, m)
		}
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	initialWindow = 256 << 10 // what a peer may send before it hears of more
	maxFrame      = 64 << 10  // payload of the largest data frame that we send
)

var errTestOver = errors.New("the test is over")

// newSession starts a session that ends with the test.
func newSession(t testing.TB, c mux.Conn, cfg mux.Config) *mux.Session {
	s := mux.New(c, cfg)
	t.Cleanup(func() { s.Close(errTestOver) })
	return s
}

// newSessionPair starts two sessions over a pipe that buffers up to limit bytes each way (0:
// unlimited).
func newSessionPair(t testing.TB, limit int, cfg mux.Config) (client, server *mux.Session) {
	a, b := pipe(limit)
	asClient := cfg
	asClient.Client = true
	return newSession(t, a, asClient), newSession(t, b, cfg)
}

// openStream opens a stream from a to b.
func openStream(t testing.TB, a, b *mux.Session, first string) (here, there *mux.Stream) {
	t.Helper()
	here, err := a.Open(t.Context(), []byte(first))
	if err != nil {
		t.Fatal("opening:", err)
	}
	there, err = b.Accept()
	if err != nil {
		t.Fatal("accepting:", err)
	}
	if here.ID() != there.ID() {
		t.Fatalf("opened stream %d, accepted %d", here.ID(), there.ID())
	}
	return here, there
}

// call is a call in progress in a synctest bubble.
type call struct {
	what string
	n    int
	err  error
	over atomic.Bool
}

func startCall(what string, f func() (int, error)) *call {
	c := &call{what: what}
	go func() {
		c.n, c.err = f()
		c.over.Store(true)
	}()
	return c
}

// wantBlocked fails unless the call still waits when everything else is blocked.
func (c *call) wantBlocked(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if c.over.Load() {
		t.Fatalf("%s does not wait: it returned %d, %v", c.what, c.n, c.err)
	}
}

// wantResult fails unless the call has returned when everything else is blocked.
func (c *call) wantResult(t *testing.T) (int, error) {
	t.Helper()
	synctest.Wait()
	if !c.over.Load() {
		t.Fatalf("%s still waits", c.what)
	}
	return c.n, c.err
}

func (c *call) wantError(t *testing.T, want error) {
	t.Helper()
	if _, err := c.wantResult(t); err != want { //nolint:errorlint // the contract says: bare
		t.Errorf("%s: %v, want %v", c.what, err, want)
	}
}

// wantBroken fails unless err is what calls return after the connection has ended.
func wantBroken(t *testing.T, what string, err error) {
	t.Helper()
	var timeout net.Error
	switch {
	case err == nil:
		t.Errorf("%s succeeded on a connection that broke", what)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		t.Errorf("%s on a connection that broke: %v looks like something else", what, err)
	case !strings.Contains(err.Error(), "the connection broke"):
		t.Errorf("%s on a connection that broke: %v does not say so", what, err)
	}
}

func wantReset(t *testing.T, what string, err error, code uint32) {
	t.Helper()
	var r *mux.ResetError
	if !errors.As(err, &r) || r.Code != code {
		t.Errorf("%s: %v, want a reset with code %d", what, err, code)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		t.Errorf("%s: the reset %v looks like an end", what, err)
	}
}

// awaitEnd waits for the end of a session.
func awaitEnd(t *testing.T, s *mux.Session) error {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Fatal("the session has not ended")
	}
	if s.Err() == nil {
		t.Error("a session that ended has no error")
	}
	return s.Err()
}

func wantAlive(t *testing.T, s *mux.Session) {
	t.Helper()
	select {
	case <-s.Done():
		t.Fatal("the session ended:", s.Err())
	default:
	}
	if err := s.Err(); err != nil {
		t.Fatal("a session that lives has the error", err)
	}
}

// randomBytes returns n bytes that differ for each seed.
func randomBytes(seed, n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8(sha256.Sum256([]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}))
	_, _ = r.Read(p)
	return p
}

// readFull reads n bytes.
func readFull(t *testing.T, st io.Reader, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(st, p); err != nil {
		t.Fatalf("reading %d bytes: %v", n, err)
	}
	return p
}

func noError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// write returns st.Write(p) as startCall needs it.
func write(st *mux.Stream, p []byte) func() (int, error) {
	return func() (int, error) { return st.Write(p) }
}

func read(st *mux.Stream) func() (int, error) {
	return func() (int, error) { return st.Read(make([]byte, 1<<10)) }
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// clientSessions has the session of a tunnel's client.
type clientSessions struct{ *tunnel.Client }

func (s clientSessions) Session(ctx context.Context) (*tunnel.Session, error) { return s.Wait(ctx) }

func (s clientSessions) Live() *tunnel.Session { return s.Client.Session() }

// noStats records nothing.
type noStats struct{}

func (noStats) Opened(time.Time) {}

func (noStats) Moved(int64, int64, bool) {}

func TestAttempt_BuffersNothingOnceOpen(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	a := r.StartAgentWith(r.Authtoken, tunnel.Bind{URL: "tcp://db.demo:5432"},
		func(_ context.Context, st *tunnel.Stream) {
			_, _ = io.ReadFull(st, make([]byte, 5)) // which are kept by then
			_ = st.Accept()
			_, _ = io.WriteString(st, "220")
			_ = st.CloseWrite()
			_, _ = io.Copy(io.Discard, st)
			_ = st.Close()
		})
	bound := servicetest.Receive(t, a.Bound, "bind")
	near, far := tcpPair(t)
	go func() {
		_, _ = io.WriteString(far, "hello")
		_, _ = io.ReadFull(far, make([]byte, 3))
		_, _ = io.WriteString(far, "more") // which need not be kept
		_ = far.CloseWrite()
	}()
	c := &Conn{Header: servicetest.OpenHeader(t, bound), Stats: noStats{}}
	f := &Relay{Sessions: clientSessions{r.StartForwarder().Client}, Timing: DefaultTiming(), Context: t.Context()}
	f.Init(c, near, account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432})
	if failure := f.Serve(c); failure != nil {
		t.Fatal(failure)
	}
	if c.buffered.buf != nil || c.buffered.pooled != nil {
		t.Errorf("%q is kept", c.buffered.buf)
	}
	if p, err := c.source.Next(); len(p) > 0 || err == nil {
		t.Errorf("read %q, %v from a connection that has ended", p, err)
	}
}

// TestAttempt_LateAbortHasNoEffect checks an abort of a relay's context that is concurrent with the
// relay's end.
func TestAttempt_LateAbortHasNoEffect(t *testing.T) {
	t.Parallel()
	near, far := tcpPair(t)
	late := newAttempt(&Conn{Connection: near, source: relay.NewSource(near)}, nil)
	_ = late.finish()
	_ = late.Abort()
	_, _ = io.WriteString(far, "x")
	if p, err := late.source.Next(); string(p) != "x" || err != nil {
		t.Errorf("read %q, %v", p, err)
	}
	if late.markOpened() {
		t.Error("a trial that is over was opened")
	}
}

func TestRequestBuffer_Limit(t *testing.T) {
	t.Parallel()
	var kept requestBuffer
	for len(kept.buf) < BufferLimit {
		if kept.full() {
			t.Fatalf("full after %d bytes", len(kept.buf))
		}
		kept.add(make([]byte, 3000))
	}
	if !kept.full() {
		t.Errorf("not full after %d bytes", len(kept.buf))
	}
	if kept.free(); kept.buf != nil {
		t.Error("it keeps what it was told to forget")
	}
	kept.free() // for good
}

func TestRequestBuffer_CanRepeat(t *testing.T) {
	t.Parallel()
	const head = "Host: api.demo\r\n"
	for input, want := range map[string]bool{
		"":                                       true,
		"GE":                                     true,
		"POST / HTTP/1.1\r\n" + head:             true, // incomplete: the edge has not acted on it
		"GET / HTTP/1.1\r\n" + head + "\r\n":     true,
		"HEAD / HTTP/1.1\r\n" + head + "\r\n":    true,
		"OPTIONS * HTTP/1.1\r\n" + head + "\r\n": true,
		"GET / HTTP/1.1\r\n" + head + "Content-Length: 1\r\n\r\n":               false,
		"GET / HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n":      false,
		"POST / HTTP/1.1\r\n" + head + "Content-Length: 0\r\n\r\n":              false,
		"DELETE / HTTP/1.1\r\n" + head + "\r\n":                                 false,
		"GET / HTTP/1.1\r\n" + head + "\r\nPOST / HTTP/1.1\r\n\r\n":             false,
		"GET /" + strings.Repeat("x", 5<<10) + " HTTP/1.1\r\n" + head + "\r\nx": false,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                      false,
		"PRI *":                                                                 false,
		"\x16\x03\x01\r\n\r\n":                                                  false,
		strings.Repeat("x", BufferLimit):                                        false,
	} {
		b := requestBuffer{buf: []byte(input)}
		if got := b.canRepeat("http"); got != want {
			t.Errorf("%.80q: %v", input, got)
		}
		if got := b.canRepeat("tcp"); got != (input == "") {
			t.Errorf("%.80q of tcp: %v", input, got)
		}
	}
}

// tcpPair returns both ends of a connection on the loopback interface.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return accepted.(*net.TCPConn), c.(*net.TCPConn)
}

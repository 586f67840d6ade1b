// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	startTimeout  = 5 * time.Minute
	serverTimeout = time.Hour // of every read, set by the http.Server
	wholeHead     = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
)

// frame is one of HTTP/2 with a payload of n bytes.
func frame(kind, flags byte, n int) string {
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, 1}) + strings.Repeat("x", n)
}

func TestConn_EndsIncompleteHeads(t *testing.T) {
	t.Parallel()
	headers, data := frame(frameHeaders, 0, 10), frame(frameData, 0, 100)
	for name, c := range map[string]struct {
		send string
		want time.Duration
	}{
		"nothing":                           {"", startTimeout},
		"half a head":                       {"GET / HTTP/1.1\r\nHost", HeadTimeout},
		"a head":                            {wholeHead, serverTimeout},
		"half a second head":                {wholeHead + "GET", HeadTimeout},
		"half a preface":                    {http2Preface[:20], HeadTimeout},
		"a preface":                         {http2Preface, serverTimeout},
		"half a frame's header":             {http2Preface + headers[:5], HeadTimeout},
		"half a HEADERS frame":              {http2Preface + headers[:12], HeadTimeout},
		"HEADERS without their end":         {http2Preface + headers, HeadTimeout},
		"an empty CONTINUATION behind them": {http2Preface + headers + frame(frameContinuation, 0, 0), HeadTimeout},
		"HEADERS that end":                  {http2Preface + frame(frameHeaders, flagEndHeaders, 10), serverTimeout},
		"HEADERS that end in a CONTINUATION": {http2Preface + headers + frame(frameContinuation, flagEndHeaders, 3),
			serverTimeout},
		"half a DATA frame":          {http2Preface + data[:50], serverTimeout},
		"a DATA frame, half HEADERS": {http2Preface + data + headers[:12], HeadTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer client.Close()
				defer server.Close()
				begun := time.Now()
				conn := New(server, Options{Protocol: HTTP1OrHTTP2, StartTimeout: startTimeout,
					HeadTimeout: HeadTimeout})
				_ = conn.SetReadDeadline(begun.Add(serverTimeout))
				go func() { _, _ = io.WriteString(client, c.send) }()
				_, err := io.ReadAll(conn)
				if after := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || after != c.want {
					t.Errorf("reads end after %s with %v, want %s", after, err, c.want)
				}
			})
		})
	}
}

// TestConn_RestartsTheClockForEachHeaderBlock sends a block every six seconds, of which each read
// sees the end of one and the beginning of the next.
func TestConn_RestartsTheClockForEachHeaderBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		conn := New(server, Options{Protocol: HTTP2, StartTimeout: startTimeout, HeadTimeout: HeadTimeout})
		whole := frame(frameHeaders, flagEndHeaders, 10)
		go func() {
			_, _ = io.WriteString(client, http2Preface+whole[:5])
			for range 10 {
				time.Sleep(6 * time.Second)
				_, _ = io.WriteString(client, whole[5:]+whole[:5])
			}
			_ = client.Close()
		}()
		if b, err := io.ReadAll(conn); err != nil || len(b) != len(http2Preface)+10*len(whole)+5 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})
}

func TestFrames_BoundContinuations(t *testing.T) {
	t.Parallel()
	most := frame(frameHeaders, 0, 3) + strings.Repeat(frame(frameContinuation, 0, 0), maxContinuations-1)
	var f frameScanner
	if ended, open, ok := f.scan([]byte(most + frame(frameContinuation, flagEndHeaders, 0))); !ended || open || !ok {
		t.Errorf("as many as are allowed: %t %t %t", ended, open, ok)
	}
	if _, _, ok := f.scan([]byte(strings.Repeat(most+frame(frameContinuation, flagEndHeaders, 0), 2))); !ok {
		t.Error("as many in each of two blocks are refused")
	}
	if _, _, ok := f.scan([]byte(most + frame(frameContinuation, 0, 0) + frame(frameContinuation, 0, 0))); ok {
		t.Error("one more is let through")
	}
}

// FuzzFrames checks that it makes no difference how the bytes come, and that nothing panics.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(frame(frameHeaders, 0, 10)+frame(frameContinuation, flagEndHeaders, 0)), 3)
	f.Add([]byte(frame(frameData, 0, 300)+frame(frameHeaders, flagEndHeaders, 1)), 7)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		if step <= 0 {
			return
		}
		var whole, piecewise frameScanner
		_, open, ok := whole.scan(b)
		stillOpen, good := false, true
		for at := 0; at < len(b) && good; at += min(step, len(b)-at) {
			_, stillOpen, good = piecewise.scan(b[at:min(at+step, len(b))])
		}
		if good != ok || ok && (stillOpen != open || piecewise != whole) {
			t.Fatalf("%q: %t %t as a whole, %t %t in pieces of %d", b, open, ok, stillOpen, good, step)
		}
	})
}

// TestConn_KeepsBytesAfterUpgrade sends more than a head may have, which is the upstream's
// once the upgrade is accepted, and nothing else.
func TestConn_KeepsBytesAfterUpgrade(t *testing.T) {
	t.Parallel()
	head := "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	early := strings.Repeat("\x00\n", MaxHeaderBytes)
	for name, c := range map[string]struct {
		answered http.ConnState
		want     string
		err      error
	}{
		"accepted": {http.StateHijacked, early, nil},
		"declined": {http.StateIdle, early[:1], errUpgradeDeclined},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := net.Pipe()
			defer server.Close()
			conn := New(server, Options{Protocol: HTTP1, StartTimeout: startTimeout, HeadTimeout: HeadTimeout})
			go func() {
				_, _ = io.WriteString(client, head+early)
				_ = client.Close()
			}()
			got := make([]byte, len(head)+1) // with the byte by which net/http watches the client
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != head+early[:1] {
				t.Fatalf("%q, %v", got, err)
			}
			conn.SetState(c.answered)
			rest, err := io.ReadAll(conn)
			if early[:1]+string(rest) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%d bytes and %v, want %d and %v", 1+len(rest), err, len(c.want), c.err)
			}
		})
	}
}

// TestConn_GoAway holds that a GOAWAY is read between two frames, also by a read that was waiting, and that
// reads go on behind it.
func TestConn_GoAway(t *testing.T) {
	t.Parallel()
	whole := frame(frameHeaders, flagEndHeaders, 10)
	for name, before := range map[string]string{
		"between frames": "", "in a frame's header": whole[:5], "in a frame": whole[:12],
		"in a header block": frame(frameHeaders, 0, 10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer client.Close()
				defer server.Close()
				conn := New(server, Options{Protocol: HTTP1OrHTTP2, StartTimeout: startTimeout,
					HeadTimeout: HeadTimeout})
				if conn.GoAway() {
					t.Error("the client has not begun")
				}
				after := whole[len(before)%len(whole):]
				if before == frame(frameHeaders, 0, 10) {
					after = frame(frameContinuation, flagEndHeaders, 3)
				}
				go func() {
					_, _ = io.WriteString(client, http2Preface+before)
					synctest.Wait()
					if !conn.GoAway() {
						t.Error("the client speaks HTTP/2")
					}
					time.Sleep(time.Second)
					_, _ = io.WriteString(client, after)
					_, _ = io.WriteString(client, whole)
					_ = client.Close()
				}()
				want := http2Preface + before + after + goAwayFrame + whole
				if before == "" {
					want = http2Preface + goAwayFrame + after + whole
				}
				if b, err := io.ReadAll(conn); err != nil || string(b) != want {
					t.Errorf("%q, %v", b, err)
				}
			})
		})
	}
}

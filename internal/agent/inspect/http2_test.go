// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// serveHTTP2 starts an upstream that speaks HTTP/2 without TLS.
func serveHTTP2(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { _ = s.Close(); serving.Wait() })
	return ln.Addr().String()
}

// tappedClient returns a client of HTTP/2 whose connections are recorded.
func tappedClient(t *testing.T, r *Recorder, addr string) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &replayConn{Conn: c, conn: r.newConn(Info{HTTP2: true})}, nil
		}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func post(t *testing.T, c *http.Client, path, contentType, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://upstream"+path,
		strings.NewReader(body))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", contentType)
	res, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestHTTP2_ParsesConcurrentStreams(t *testing.T) {
	t.Parallel()
	addr := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Path", r.URL.Path)
		_, _ = fmt.Fprintf(w, "%s has %d bytes", r.URL, len(b))
		w.Header().Set("X-Sum", fmt.Sprint(len(b)))
	})
	r := newRecorder(t)
	c := tappedClient(t, r, addr)
	const count = 40
	var calls sync.WaitGroup
	for i := range count {
		calls.Go(func() { post(t, c, fmt.Sprintf("/%d?q=%d", i, i), "text/plain", strings.Repeat("x", i*2000)) })
	}
	calls.Wait()
	seen := map[string]bool{}
	for _, e := range awaitDone(t, r, count) {
		var i int
		_, _ = fmt.Sscanf(e.Request.URL, "/%d", &i)
		seen[e.Request.URL] = true
		want := fmt.Sprintf("/%d?q=%d has %d bytes", i, i, i*2000)
		if e.Request.Method != "POST" || e.Request.Header.Get("Host") != "upstream" || e.Request.Proto != "HTTP/2.0" ||
			len(e.Request.Body) != i*2000 || e.Response == nil || e.Response.Status != 200 ||
			string(e.Response.Body) != want || e.Response.Trailer.Get("X-Sum") != fmt.Sprint(i*2000) || e.Error != "" {
			t.Errorf("%s", summary(e))
		}
	}
	if len(seen) != count {
		t.Errorf("%d different requests", len(seen))
	}
}

func TestHTTP2_CutsGRPCMessages(t *testing.T) {
	t.Parallel()
	addr := serveHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	r := newRecorder(t)
	post(t, tappedClient(t, r, addr), "/pkg.Service/Call", "application/grpc+proto",
		"\x00\x00\x00\x00\x03abc\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01z")
	e := awaitDone(t, r, 1)[0]
	var sent, got []string
	for _, f := range e.Frames {
		if f.FromClient {
			sent = append(sent, string(f.Data))
		} else {
			got = append(got, string(f.Data))
		}
	}
	if strings.Join(sent, ",") != "abc,,z" || strings.Join(got, ",") != "abc,,z" ||
		e.Response.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("sent %q, got %q, trailer %v", sent, got, e.Response.Trailer)
	}
}

func TestHTTP2_ReportsResets(t *testing.T) {
	t.Parallel()
	addr := serveHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("begin"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r := newRecorder(t)
	res, err := tappedClient(t, r, addr).Get("http://upstream/a")
	must.Succeed(t, err)
	_, _ = io.ReadAll(res.Body)
	_ = res.Body.Close()
	e := awaitDone(t, r, 1)[0]
	if !strings.Contains(e.Error, "the upstream reset the stream") || string(e.Response.Body) != "begin" {
		t.Errorf("%s", summary(e))
	}
}

// http2Wire sends frames on a recorded connection.
type http2Wire struct {
	*wire

	out     bytes.Buffer
	framer  *http2.Framer
	fields  bytes.Buffer
	encoder *hpack.Encoder
}

func newHTTP2Wire(r *Recorder) *http2Wire {
	w := &http2Wire{wire: &wire{c: r.newConn(Info{HTTP2: true})}}
	w.framer = http2.NewFramer(&w.out, nil)
	w.encoder = hpack.NewEncoder(&w.fields)
	w.client(http2.ClientPreface)
	_ = w.framer.WriteSettings()
	w.flush()
	return w
}

func (w *http2Wire) flush() {
	w.client(w.out.String())
	w.out.Reset()
}

func (w *http2Wire) request(id uint32, path string, body bool) {
	w.fields.Reset()
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":path", Value: path},
		{Name: "x-long", Value: "the same in each request"}} {
		_ = w.encoder.WriteField(f)
	}
	_ = w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.fields.Bytes(), EndHeaders: true,
		EndStream: !body})
	w.flush()
}

// TestHTTP2_DropsOnlyBodies checks that requests are recorded after some did not fit into the
// queue: their headers refer to those of earlier ones.
func TestHTTP2_DropsOnlyBodies(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newHTTP2Wire(r)
	r.mu.Lock()
	data := make([]byte, 16<<10)
	const count = 1000
	for i := range count {
		w.request(uint32(2*i+1), fmt.Sprintf("/%d", i), true)
		for range 4 {
			_ = w.framer.WriteData(uint32(2*i+1), false, data)
		}
		_ = w.framer.WriteData(uint32(2*i+1), true, nil)
		_ = w.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		w.flush()
	}
	r.mu.Unlock()
	await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
	all := r.List(Filter{})
	if r.Dropped() == 0 || len(all) != maxRecords {
		t.Fatalf("dropped %d bytes, %d exchanges", r.Dropped(), len(all))
	}
	for i, e := range all {
		if want := fmt.Sprintf("/%d", count-1-i); e.Request.URL != want || e.Request.BodySize != 64<<10 || !e.Done ||
			e.Request.Header.Get("X-Long") == "" || e.Lost == 0 || !e.Request.Truncated {
			t.Fatalf("%s has %d bytes, want %s: %+v", e.Request.URL, e.Request.BodySize, want, e)
		}
	}
}

func TestHTTP2_ShowsOtherProtocols(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newHTTP2Wire(r)
	w.request(1, "/a", false)
	w.server("HTTP/1.1 400 Bad Request\r\n\r\n")
	e := awaitDone(t, r, 1)[0]
	if !e.Raw || e.Error != errNotHTTP2 || e.Request.URL != "/a" ||
		string(e.Response.Body) != "HTTP/1.1 400 Bad Request\r\n\r\n" {
		t.Errorf("%s", summary(e))
	}
}

func FuzzHTTP2(f *testing.F) {
	f.Add(
		[]byte(http2.ClientPreface+
			"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03\x01\x25\x00\x00\x00\x01\x82\x86\x84"),
		[]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"), 3)
	f.Fuzz(func(t *testing.T, client, server []byte, piece int) { fuzzConnection(t, client, server, piece, true) })
}

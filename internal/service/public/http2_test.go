// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// h2Conn is an HTTP/2 connection whose frames are the test's own.
type h2Conn struct {
	t      *testing.T
	conn   *tls.Conn
	framer *http2.Framer
}

func (w *testServer) h2(name string) *h2Conn {
	w.t.Helper()
	c := w.dialTLS(name, "h2")
	_, _ = io.WriteString(c, http2.ClientPreface)
	h := &h2Conn{w.t, c, http2.NewFramer(c, c)}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = h.framer.WriteSettings()
	return h
}

// sendHead sends a head on the stream.
func (h *h2Conn) sendHead(stream uint32, end bool, fields ...string) {
	h.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	must.Succeed(h.t, h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
		EndStream:  end,
		EndHeaders: true}))
}

// outcome returns the status of the answer on the stream, or how the stream or the connection was
// ended.
func (h *h2Conn) outcome(stream uint32) string {
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			return "goaway"
		}
	}
}

// goodHead is the head of a request for app.example.com, as names and values.
var goodHead = []string{":method", "GET", ":scheme", "https", ":authority", "app.example.com", ":path", "/a"}

// headWith returns goodHead and more fields.
func headWith(more ...string) []string { return slices.Concat(goodHead, more) }

// headWithPseudo returns goodHead with another value of the pseudo-header field.
func headWithPseudo(name, value string) []string {
	head := slices.Clone(goodHead)
	head[slices.Index(head, name)+1] = value
	return head
}

// http2Heads are heads, each with its outcome or several of which one is expected.
var http2Heads = map[string]struct {
	fields []string
	want   string
}{
	"a good one":              {goodHead, "200"},
	"a host that agrees":      {headWith("host", "app.example.com"), "200"},
	"a host that differs":     {headWith("host", "two.example.com"), "400"},
	"two hosts":               {headWith("host", "app.example.com", "host", "app.example.com"), "400"},
	"two authorities":         {headWith(":authority", "two.example.com"), "reset"},
	"two paths":               {headWith(":path", "/b"), "reset"},
	"no path":                 {goodHead[:6], "reset"},
	"an empty path":           {headWithPseudo(":path", ""), "reset"},
	"an absolute path":        {headWithPseudo(":path", "https://two.example.com/"), "400 reset"},
	"an unknown pseudo":       {headWith(":evil", "x"), "reset"},
	"a pseudo after a header": {headWith("x", "y", ":path", "/b"), "reset"},
	"a pseudo of an answer":   {headWith(":status", "200"), "reset"},
	"an upper-case name":      {headWith("X-Upper", "y"), "reset goaway closed"},
	"a line in a value":       {headWith("x", "a\r\nhost: two.example.com"), "reset"},
	"a line in the path":      {headWithPseudo(":path", "/a HTTP/1.1\r\nX: y"), "400 reset"},
	"a line in the method":    {headWithPseudo(":method", "GET / HTTP/1.1\r\n"), "400 reset"},
	"connection":              {headWith("connection", "close"), "400 reset"},
	"transfer-encoding":       {headWith("transfer-encoding", "chunked"), "400 reset"},
	"a blank in the method":   {headWithPseudo(":method", "GET /b"), "400 reset"},
	"a te":                    {headWith("te", "gzip"), "400 reset"},
	"a te of trailers":        {headWith("te", "trailers"), "200"},
	"two lengths":             {headWith("content-length", "0", "content-length", "1"), "400"},
	"the same length twice":   {headWith("content-length", "0", "content-length", "0"), "400"},
	"a length without a body": {headWith("content-length", "3"), "400"},
	"a length of nothing":     {headWith("content-length", "0"), "200"},
	"a length in words":       {headWith("content-length", "three"), "400"},
	"upgrade":                 {headWith("upgrade", "h2c"), "400 reset"},
	"another authority":       {headWithPseudo(":authority", "app.other.test"), "421"},
	"CONNECT":                 {[]string{":method", "CONNECT", ":authority", "app.example.com:443"}, "400"},
	"an extended CONNECT": {[]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https",
		":authority", "app.example.com", ":path", "/"}, "400 reset"},
}

func TestServer_ChecksHTTP2Heads(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for name, c := range http2Heads {
		h := w.h2("app.example.com")
		h.sendHead(1, true, c.fields...)
		if got := h.outcome(1); !strings.Contains(c.want, got) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestServer_ChecksHTTP2BodyLength(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, body := range []string{"abcd", "ab"} {
		h := w.h2("app.example.com")
		h.sendHead(1, false, append(headWithPseudo(":method", "POST"), "content-length", "3")...)
		_ = h.framer.WriteData(1, true, []byte(body))
		if got := h.outcome(1); got == "200" {
			t.Errorf("a body of %d bytes whose length is stated as 3 was accepted", len(body))
		}
	}
}

// TestServer_SurvivesRapidReset checks that streams that are opened and reset at once do not make
// more work than streams that stay, and end the connection.
func TestServer_SurvivesRapidReset(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	release := make(chan struct{})
	w := newTestServer(t, func(o *Options) {
		o.Handler = serveFunc(func(http.ResponseWriter, *http.Request, *account.Endpoint, Client) {
			for n := running.Add(1); ; {
				if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
					break
				}
			}
			<-release // like an upstream that does not notice that its client has gone
			running.Add(-1)
		})
	})
	h := w.h2("app.example.com")
	ended := make(chan error, 1)
	go func() {
		for {
			f, err := h.framer.ReadFrame()
			if _, away := f.(*http2.GoAwayFrame); err != nil || away {
				ended <- err
				_ = h.conn.Close() // ends a write that is under way
				return
			}
		}
	}()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // one block serves for all
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "app.example.com"},
		{":path", "/a"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for id := uint32(1); id < 40*maxHTTP2Streams; id += 2 {
		if h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true,
			EndHeaders: true}) != nil || h.framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was not ended")
	}
	if most.Load() > maxHTTP2Streams {
		t.Errorf("%d requests of one connection were served at a time", most.Load())
	}
	close(release)
}

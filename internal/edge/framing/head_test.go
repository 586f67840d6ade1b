// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// FuzzHead checks that net/http reads the same of a head that is let through: the same end, kind of
// body and length, or that it refuses the request.
func FuzzHead(f *testing.F) {
	for _, c := range framingtest.Cases() {
		if len(c.Send) < 4<<10 {
			f.Add([]byte(c.Send))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, bad := headEnd(b)
		if bad || end == 0 {
			return
		}
		length, chunked, ok := checkHead(b[:end])
		if !ok {
			return
		}
		in := bytes.NewReader(b)
		r := bufio.NewReaderSize(in, 1<<16)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if consumed := len(b) - in.Len() - r.Buffered(); consumed != end {
			t.Fatalf("net/http takes %d bytes of %q for the head, not %d", consumed, b, end)
		}
		if got := len(req.TransferEncoding) > 0; got != chunked {
			t.Fatalf("%q: chunked %t, net/http %q", b, chunked, req.TransferEncoding)
		}
		if !chunked && req.ContentLength != length {
			t.Fatalf("%q: length %d, net/http %d", b, length, req.ContentLength)
		}
	})
}

// FuzzChunks checks that a chunked body that is let through ends at the same byte for net/http, or
// is refused by it, and that it makes no difference how the bytes come.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\nnext", "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
		"a\r\n0123456789\r\n00\r\n\r\n", "3\nabc\n0\n\n", "1 \r\nx\r\n0\r\n\r\n", "\r\n", "g\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var whole, piecewise chunkScanner
		used, done, ok := whole.scan(b)
		n, end, good := 0, false, true
		for i := 0; i < len(b) && good && !end; i++ {
			var u int
			u, end, good = piecewise.scan(b[i : i+1])
			n += u
		}
		if n != used || end != done || good != ok {
			t.Fatalf("%q: %d %t %t as a whole, %d %t %t byte by byte", b, used, done, ok, n, end, good)
		}
		if !done {
			return
		}
		in := bytes.NewReader(append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), b...))
		r := bufio.NewReaderSize(in, 1<<16)
		req, err := http.ReadRequest(r)
		must.Succeed(t, err)
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if left := in.Len() + r.Buffered(); left != len(b)-used {
			t.Fatalf("net/http leaves %d bytes of %q, not %d", left, b, len(b)-used)
		}
	})
}

// TestConn_BoundsHeads checks the bound on an incomplete head.
func TestConn_BoundsHeads(t *testing.T) {
	t.Parallel()
	if end, bad := headEnd([]byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", MaxHeaderBytes))); end != 0 || bad {
		t.Errorf("an unfinished head: %d %t", end, bad)
	}
	if _, ok := parseLength([]byte("9223372036854775807")); ok {
		t.Error("the greatest int64 is taken; a digit less is enough")
	}
	if n, ok := parseLength([]byte("922337203685477580")); !ok || n != 922337203685477580 {
		t.Errorf("%d %t", n, ok)
	}
}

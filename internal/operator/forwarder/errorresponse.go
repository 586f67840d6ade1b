// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
)

const (
	errorWriteTimeout = 5 * time.Second
	http2PrefaceHead  = "PRI * HTTP/2.0\r\n\r\n" // the part of http2.ClientPreface that ends like a request's head
)

// endFailed ends a connection whose stream never opened: with an error response where the client
// speaks HTTP, otherwise with a reset, so that the client cannot take it for a regular end. It owns
// c.
func (f *forwarder) endFailed(c connection, to portAssignment, input *requestBuffer, failure *failure) {
	if to.Scheme != "http" || failure.code == "" {
		reset(c)
		return
	}
	_ = c.SetLinger(-1) // listeners set SO_LINGER to 0, which makes a close a reset
	input.readHead(c, f.timing.headTimeout)
	if len(input.buf) == 0 && input.eof { // the client sent no request
		_ = c.Close()
		return
	}
	if bytes.HasPrefix(input.buf, []byte(http2PrefaceHead)) {
		answerHTTP2(c, input.buf, failure)
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(errorWriteTimeout))
	if _, err := c.Write(http1Response(input.buf, failure)); err != nil {
		reset(c)
		return
	}
	closeLingering(c, f.timing.linger)
}

// closeLingering closes c after reading and dropping input for at most the linger time. Closing a
// connection with unread input makes the kernel send a reset, which discards a response that the
// client has not read yet.
func closeLingering(c connection, linger time.Duration) {
	if c.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.Copy(io.Discard, c)
	}
	_ = c.Close()
}

// reset closes c with a TCP reset.
func reset(c connection) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// readHead reads until the head of a request is complete, the buffer is full or the timeout has
// passed.
func (e *requestBuffer) readHead(c net.Conn, timeout time.Duration) {
	_ = c.SetReadDeadline(time.Now().Add(timeout))
	var p [1 << 10]byte
	for !e.eof && !e.full() && !headComplete(e.buf) {
		n, err := c.Read(p[:])
		e.add(p[:n])
		e.eof = errors.Is(err, io.EOF)
		if err != nil {
			return
		}
	}
}

// headComplete reports whether b contains the empty line that ends a request's head.
func headComplete(b []byte) bool {
	return bytes.Contains(b, []byte("\r\n\r\n")) || bytes.Contains(b, []byte("\n\n"))
}

// answerHTTP2 answers the requests of an HTTP/2 connection that has begun with the given input, and
// asks the client to open another one. It owns c.
func answerHTTP2(c connection, begun []byte, failure *failure) {
	_ = c.SetDeadline(time.Now().Add(errorWriteTimeout))
	//nolint:staticcheck // http.Server takes listeners only; this is one connection
	new(http2.Server).ServeConn(&startedConn{c, begun}, &http2.ServeConnOpts{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := failure.answer(w.Header(), r.Header)
			w.Header().Set("Connection", "close") // GOAWAY
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}),
		BaseConfig: &http.Server{ErrorLog: log.New(io.Discard, "", 0)},
	})
}

// startedConn is a connection whose beginning was read already. Its deadline stays as it is.
type startedConn struct {
	connection
	begun []byte
}

// Read returns the beginning first.
func (c *startedConn) Read(p []byte) (int, error) {
	if n := copy(p, c.begun); n > 0 {
		c.begun = c.begun[n:]
		return n, nil
	}
	return c.connection.Read(p)
}

// answer sets the header of an answer and returns its status and body: none for gRPC, HTML if the
// request accepts it, otherwise JSON in the shape of the API's errors.
func (f *failure) answer(h, request http.Header) (status int, body []byte) {
	status = f.code.Status()
	h.Set(account.CodeHeader, string(f.code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if trafficerror.SetGRPC(h, request, status, f.code, f.msg) {
		return http.StatusOK, nil
	}
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	if strings.Contains(request.Get("Accept"), "text/html") {
		h.Set("Content-Type", "text/html; charset=utf-8")
		body = htmlBody(status, f)
	} else {
		h.Set("Content-Type", "application/json")
		body = account.ErrorBody{Code: f.code, Status: status, Msg: f.msg}.JSON()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return status, body
}

// http1Response returns an HTTP/1 response to a request of which head is known.
func http1Response(head []byte, failure *failure) []byte {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		r = &http.Request{}
	}
	h := http.Header{"Connection": {"close"}}
	status, body := failure.answer(h, r.Header)
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = h.Write(&b) // to a buffer
	b.WriteString("\r\n")
	if r.Method != http.MethodHead {
		b.Write(body)
	}
	return b.Bytes()
}

func htmlBody(status int, failure *failure) []byte {
	title := fmt.Sprintf("%d %s", status, http.StatusText(status))
	return fmt.Appendf(nil,
		"<!doctype html>\n<html lang=\"en\"><head><meta "+
			"charset=\"utf-8\"><title>%s</title></head>\n<body><h1>%s</h1><p>%s</p><p>%s</p></body></html>\n",
		title, title, html.EscapeString(failure.msg), failure.code)
}

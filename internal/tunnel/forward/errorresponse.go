// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

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

// Fail ends a connection whose stream never opened: with an error response where the client speaks
// HTTP, otherwise with a reset, so that the client cannot take it for a regular end. It owns c.
func (r *Relay) Fail(c *Conn, failure *Failure) {
	if c.URL.Scheme != "http" || failure.Code == "" {
		Reset(c)
		return
	}
	input := &c.buffered
	_ = c.SetLinger(-1) // listeners set SO_LINGER to 0, which makes a close a reset
	input.readHead(c, r.Timing.HeadTimeout)
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
		Reset(c)
		return
	}
	closeLingering(c, r.Timing.Linger)
}

// closeLingering closes c after reading and dropping input for at most the linger time. Closing a
// connection with unread input makes the kernel send a reset, which discards a response that the
// client has not read yet.
func closeLingering(c Connection, linger time.Duration) {
	if c.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.Copy(io.Discard, c)
	}
	_ = c.Close()
}

// Reset closes c with a TCP reset.
func Reset(c Connection) {
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
func answerHTTP2(c Connection, begun []byte, failure *Failure) {
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
	Connection
	begun []byte
}

// Read returns the beginning first.
func (c *startedConn) Read(p []byte) (int, error) {
	if n := copy(p, c.begun); n > 0 {
		c.begun = c.begun[n:]
		return n, nil
	}
	return c.Connection.Read(p)
}

// answer sets the header of an answer and returns its status and body: none for gRPC, HTML if the
// request accepts it, otherwise JSON in the shape of the API's errors.
func (f *Failure) answer(h, request http.Header) (status int, body []byte) {
	status = f.Code.Status()
	h.Set(account.CodeHeader, string(f.Code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if trafficerror.SetGRPC(h, request, status, f.Code, f.Msg) {
		return http.StatusOK, nil
	}
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	if strings.Contains(request.Get("Accept"), "text/html") {
		h.Set("Content-Type", "text/html; charset=utf-8")
		body = htmlBody(status, f)
	} else {
		h.Set("Content-Type", "application/json")
		body = account.ErrorBody{Code: f.Code, Status: status, Msg: f.Msg}.JSON()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return status, body
}

// http1Response returns an HTTP/1 response to a request of which head is known.
func http1Response(head []byte, failure *Failure) []byte {
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

func htmlBody(status int, failure *Failure) []byte {
	title := fmt.Sprintf("%d %s", status, http.StatusText(status))
	return fmt.Appendf(nil,
		"<!doctype html>\n<html lang=\"en\"><head><meta "+
			"charset=\"utf-8\"><title>%s</title></head>\n<body><h1>%s</h1><p>%s</p><p>%s</p></body></html>\n",
		title, title, html.EscapeString(failure.Msg), failure.Code)
}

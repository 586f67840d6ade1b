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
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/internal/account"
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
	_ = c.SetWriteDeadline(time.Now().Add(errorWriteTimeout))
	if _, err := c.Write(errorResponse(input.buf, failure)); err != nil {
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

// errorResponse returns the response to a client that sent these bytes: a GOAWAY frame for HTTP/2,
// an HTTP/1 response otherwise.
func errorResponse(head []byte, failure *failure) []byte {
	if bytes.HasPrefix(head, []byte(http2PrefaceHead)) {
		return goAway(failure)
	}
	return http1Response(head, failure)
}

// goAway returns the frames that tell an HTTP/2 client that none of its streams was processed.
func goAway(failure *failure) []byte {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings() // writes to a buffer cannot fail
	_ = framer.WriteGoAway(0, http2.ErrCodeRefusedStream, []byte(string(failure.code)+": "+failure.msg))
	return b.Bytes()
}

// http1Response returns an HTTP/1 response: HTML if the request accepts it, otherwise JSON in the
// shape of the API's errors.
func http1Response(head []byte, failure *failure) []byte {
	status := failure.code.Status()
	contentType := "application/json"
	body := account.ErrorBody{Code: failure.code, Status: status, Msg: failure.msg}.JSON()
	method := ""
	if r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head))); err == nil {
		method = r.Method
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			contentType, body = "text/html; charset=utf-8", htmlBody(status, failure)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"+
		"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), account.CodeHeader, failure.code, contentType, len(body))
	if method != http.MethodHead {
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

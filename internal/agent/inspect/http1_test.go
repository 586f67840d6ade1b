// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// turn is what one side sends.
type turn struct {
	fromServer bool
	bytes      string
}

func request(s string) turn { return turn{false, strings.ReplaceAll(s, "\n", "\r\n")} }
func answer(s string) turn  { return turn{true, strings.ReplaceAll(s, "\n", "\r\n")} }

// summary describes an exchange in a line.
func summary(e *Exchange) string {
	s := fmt.Sprintf("%s %s %q", e.Request.Method, e.Request.URL, e.Request.Body)
	if e.Response != nil {
		s += fmt.Sprintf(" -> %d %q", e.Response.Status, e.Response.Body)
		if e.Response.Trailer != nil {
			s += fmt.Sprint(" trailer ", e.Response.Trailer)
		}
	}
	for _, f := range e.Frames {
		from := "<"
		if f.FromClient {
			from = ">"
		}
		s += fmt.Sprintf(" %s%s %q", from, f.Kind, f.Data)
	}
	if e.Raw {
		s += " raw"
	}
	if e.Error != "" {
		s += " error " + e.Error
	}
	return s
}

var http1Cases = map[string]struct {
	turns []turn
	cause error
	want  []string
}{
	"several requests": {turns: []turn{
		request("GET /a HTTP/1.1\nHost: h\n\n"), answer("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
		request("POST /b HTTP/1.1\nContent-Length: 3\n\nabc"), answer("HTTP/1.1 204 No Content\n\n"),
		request("HEAD /c HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nContent-Length: 100\n\n"),
		request("GET /d HTTP/1.1\n\n"), answer("HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n"),
		request("GET /e HTTP/1.1\n\n"),
		answer("HTTP/1.1 200 OK\ntransfer-encoding: gzip, Chunked\n\n3;x=y\nabc\n2\nde\n0\nX-T: v\n\n"),
		request("GET /f HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nConnection: close\n\nuntil the end"),
	}, want: []string{
		`GET /a "" -> 200 "ok"`, `POST /b "abc" -> 204 ""`, `HEAD /c "" -> 200 ""`, `GET /d "" -> 304 ""`,
		`GET /e "" -> 200 "abcde" trailer map[X-T:[v]]`, `GET /f "" -> 200 "until the end"`,
	}},
	"continue": {turns: []turn{
		request("PUT /a HTTP/1.1\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n"),
		answer("HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: x\n\n"), request("5\nhello\n0\n\n"),
		answer("HTTP/1.1 201 Created\nContent-Length: 0\n\n"),
	}, want: []string{`PUT /a "hello" -> 201 ""`}},
	"pipelined": {turns: []turn{
		request("GET /a HTTP/1.1\n\nGET /b HTTP/1.1\n\n"),
		answer("HTTP/1.1 200 OK\nContent-Length: 1\n\naHTTP/1.1 200 OK\nContent-Length: 1\n\nb"),
	}, want: []string{`GET /a "" -> 200 "a"`, `GET /b "" -> 200 "b"`}},
	"answered early": {turns: []turn{
		request("POST /a HTTP/1.1\nContent-Length: 10\n\nabc"), answer("HTTP/1.1 413 Too Large\nContent-Length: 0\n\n"),
	}, cause: errors.New("reset"), want: []string{`POST /a "abc" -> 413 "" error reset`}},
	"no answer": {turns: []turn{request("GET /a HTTP/1.1\n\n")}, cause: errors.New("reading: reset"),
		want: []string{`GET /a "" error the connection ended before the answer: reading: reset`}},
	"cut": {turns: []turn{request("GET /a HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nContent-Length: 10\n\nabc")},
		want: []string{`GET /a "" -> 200 "abc" error the connection ended within the answer`}},
	"line feeds only": {turns: []turn{request("GET /a HTTP/1.1\n\n"), {true, "HTTP/1.0 200 OK\nX: y\n\nbody\n\nmore"}},
		want: []string{`GET /a "" -> 200 "body\n\nmore"`}},
	"nothing asked": {turns: []turn{answer("HTTP/1.1 408 Request Timeout\n\n")}},
	"not HTTP": {turns: []turn{{false, "\x16\x03\x01 not http\r\n\r\n"}, {true, "neither\r\n"}},
		want: []string{`  "\x16\x03\x01 not http\r\n\r\n" -> 0 "neither\r\n" raw`}},
	"an answer that is not HTTP": {turns: []turn{request("GET /a HTTP/1.1\n\n"), answer("SSH-2.0-OpenSSH\nmore")},
		want: []string{`GET /a "" -> 0 "SSH-2.0-OpenSSH\r\nmore" raw`}},
	"another protocol": {turns: []turn{
		request("POST /exec HTTP/1.1\nConnection: Upgrade\nUpgrade: tcp\n\n"), answer("HTTP/1.1 101 UPGRADED\n\nhello"),
		request("input"), answer("output"),
	}, want: []string{`POST /exec "input" -> 101 "hellooutput" raw`}},
	"HTTP/1.0": {turns: []turn{
		request("GET /a HTTP/1.1\n\n"), answer("HTTP/1.0 200 OK\nContent-Length: 2\n\nok"),
		request("GET /b HTTP/1.1\n\n"), answer("HTTP/1.0 404 Not Found\n\nuntil the end"),
	}, want: []string{`GET /a "" -> 200 "ok"`, `GET /b "" -> 404 "until the end"`}},
	"HTTP/2 from the upstream": {turns: []turn{
		request("GET /a HTTP/1.1\n\n"), {true, "\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n"},
	}, want: []string{`GET /a "" -> 0 "\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n" raw`}},
	"HTTP/2 from the caller": {turns: []turn{{false, h2Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"}},
		want: nil},
	"another protocol later": {turns: []turn{
		request("GET /a HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
		request("GET /b HTTP/1.1\n\n"), answer("-ERR unknown command\n"),
	}, want: []string{`GET /a "" -> 200 "ok"`, `GET /b "" -> 0 "-ERR unknown command\r\n" raw`}},
	"a length that lies": {turns: []turn{
		request("GET /a HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\nabc"),
	}, want: []string{`GET /a "" -> 200 "abc"`}},
	"a chunk that lies": {turns: []turn{
		request("GET /a HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nzz\nabc"),
	}, want: nil},
	"events": {turns: []turn{
		request("GET /e HTTP/1.1\n\n"), answer("HTTP/1.1 200 OK\nContent-Type: text/event-stream\n\ndata: 1\n\n"),
		{true, "event: x\ndata: 2\n\n"}, answer("data: 3\n\n"),
	}, want: []string{"GET /e \"\" -> 200 \"data: 1\\r\\n\\r\\nevent: x\\ndata: 2\\n\\ndata: 3\\r\\n\\r\\n\" " +
		"<event \"data: 1\\r\\n\" <event \"event: x\\ndata: 2\\n\" <event \"data: 3\\r\\n\""}},
}

// TestHTTP1_Parses sends each connection whole, in pieces, and byte by byte.
func TestHTTP1_Parses(t *testing.T) {
	t.Parallel()
	for name, c := range http1Cases {
		for _, piece := range []int{0, 1, 2, 7, 64} {
			t.Run(fmt.Sprintf("%s/%d", name, piece), func(t *testing.T) {
				t.Parallel()
				if strings.Contains(name, "not HTTP") && piece > 0 {
					t.Skip("pieces of what is no header are shown from where that is known")
				}
				r := newRecorder(t)
				w := newWire(r, piece)
				for _, turn := range c.turns {
					if turn.fromServer {
						w.server(turn.bytes)
					} else {
						w.client(turn.bytes)
					}
				}
				w.c.end(c.cause)
				await(t, r, "end", func() bool { return r.queued.Load() == 0 })
				var got []string
				for _, e := range awaitDone(t, r, len(r.List(Filter{}))) {
					got = append(got, summary(e))
				}
				if c.want != nil && strings.Join(got, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		}
	}
}

// FuzzHTTP1 checks that no bytes make the parser panic, wait, or keep more than it may.
func FuzzHTTP1(f *testing.F) {
	for _, c := range http1Cases {
		var client, server string
		for _, turn := range c.turns {
			if turn.fromServer {
				server += turn.bytes
			} else {
				client += turn.bytes
			}
		}
		f.Add([]byte(client), []byte(server), 7)
	}
	f.Fuzz(func(t *testing.T, client, server []byte, piece int) { fuzzConnection(t, client, server, piece, false) })
}

func fuzzConnection(t *testing.T, client, server []byte, piece int, http2 bool) {
	r := New()
	defer r.Close()
	c := r.newConn(Info{HTTP2: http2})
	w := &wire{c, min(max(piece, 0), 1<<20)}
	w.client(string(client))
	w.server(string(server))
	c.end(nil)
	await(t, r, "end", func() bool { return r.queued.Load() == 0 })
	kept := 0
	for _, e := range whole(t, r) {
		kept += len(e.Request.Body)
		if e.Response != nil {
			kept += len(e.Response.Body)
		}
		if !e.Done {
			t.Errorf("%s is not done after the end", e.ID)
		}
	}
	if kept > len(client)+len(server) {
		t.Errorf("kept %d bytes of %d", kept, len(client)+len(server))
	}
}

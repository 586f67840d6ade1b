// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestHTTP1Response(t *testing.T) {
	t.Parallel()
	why := &Failure{Reason: ReasonNoEdge, Code: account.CodeNoEdge, Msg: "No <edge> for http://api.demo."}
	for name, tt := range map[string]struct {
		head, method, contentType string
	}{
		"no Accept": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "application/json"},
		"a program": {"GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n", "GET", "application/json"},
		"a browser": {"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html,application/xhtml+xml\r\n\r\n", "GET",
			"text/html; charset=utf-8"},
		"HEAD":            {"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD", "application/json"},
		"HTTP/1.0":        {"GET / HTTP/1.0\r\n\r\n", "GET", "application/json"},
		"half a head":     {"GET / HTTP/1.1\r\nAcc", "GET", "application/json"},
		"not HTTP at all": {"\x16\x03\x01\x02\x00", "GET", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(http1Response([]byte(tt.head), why))),
				&http.Request{Method: tt.method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != 503 || !res.Close || res.Header.Get(account.CodeHeader) != "ERR_FL_3004" ||
				res.Header.Get("Content-Type") != tt.contentType {
				t.Errorf("got %s, close %v, %s", res.Status, res.Close, res.Header.Get("Content-Type"))
			}
			if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy,
				"frame-ancestors 'none'") {
				t.Errorf("Content-Security-Policy %q", policy)
			}
			switch {
			case tt.method == "HEAD":
				if len(body) != 0 || res.ContentLength <= 0 {
					t.Errorf("HEAD: body %q, Content-Length %d", body, res.ContentLength)
				}
			case strings.HasPrefix(tt.contentType, "text/html"):
				if !strings.Contains(string(body), "ERR_FL_3004") ||
					!strings.Contains(string(body), "No &lt;edge&gt; for") {
					t.Errorf("body %s", body)
				}
			default:
				var got struct {
					Code   string `json:"error_code"`
					Status int    `json:"status_code"`
					Msg    string `json:"msg"`
				}
				if err := json.Unmarshal(body, &got); err != nil || got.Code != "ERR_FL_3004" || got.Status != 503 ||
					got.Msg != why.Msg {
					t.Errorf("body %s: %v", body, err)
				}
			}
		})
	}
}

// TestAnswerHTTP2 checks that gRPC clients get a status of gRPC without a body, others a page, and
// that the connection ends.
func TestAnswerHTTP2(t *testing.T) {
	t.Parallel()
	why := &Failure{Reason: "offline", Code: account.CodeEndpointOffline, Msg: "Off % line."}
	for contentType, want := range map[string]string{
		"application/grpc": "200 application/grpc 14 ERR_FL_3001: Off %25 line. ",
		"text/plain": "503 application/json   " +
			string(account.ErrorBody{Code: account.CodeEndpointOffline, Status: 503, Msg: why.Msg}.JSON()),
	} {
		server, client := tcpPair(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			input := &requestBuffer{}
			input.readHead(server, time.Minute)
			answerHTTP2(server, input.buf, why)
		}()
		transport := &http.Transport{Protocols: new(http.Protocols),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
		transport.Protocols.SetUnencryptedHTTP2(true)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.demo/x", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type"), " ",
			res.Header.Get("Grpc-Status"), " ", res.Header.Get("Grpc-Message"), " ",
			string(body)); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", contentType, got, err, want)
		}
		<-ended
	}
}

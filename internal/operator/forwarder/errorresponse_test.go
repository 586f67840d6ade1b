// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestHTTP1Response(t *testing.T) {
	t.Parallel()
	why := &failure{reasonNoEdge, account.CodeNoEdge, "No <edge> for http://api.demo."}
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
			res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(errorResponse([]byte(tt.head), why))),
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
					got.Msg != why.msg {
					t.Errorf("body %s: %v", body, err)
				}
			}
		})
	}
}

func TestErrorResponse_HTTP2GoAway(t *testing.T) {
	t.Parallel()
	why := &failure{"offline", account.CodeEndpointOffline, "Offline."}
	for name, head := range map[string]string{"preface": http2.ClientPreface + "\x00\x00\x00\x04",
		"its beginning": http2.ClientPreface[:18]} {
		framer := http2.NewFramer(io.Discard, bytes.NewReader(errorResponse([]byte(head), why)))
		settings, err := framer.ReadFrame()
		if _, ok := settings.(*http2.SettingsFrame); !ok {
			t.Fatalf("%s: first frame %v, %v", name, settings, err)
		}
		frame, err := framer.ReadFrame()
		goAway, ok := frame.(*http2.GoAwayFrame)
		if !ok || goAway.LastStreamID != 0 || string(goAway.DebugData()) != "ERR_FL_3001: Offline." {
			t.Errorf("%s: second frame %v, %v", name, frame, err)
		}
	}
}

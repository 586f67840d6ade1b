// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"testing"
	"time"
)

func TestRecorder_ShowsUnreachedUpstreams(t *testing.T) {
	t.Parallel()
	const want = "the upstream was not reached: connection refused"
	for name, c := range map[string]struct {
		sent, url, body string
		http2           bool
	}{
		"whole":    {sent: "POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nok", url: "/a", body: "ok"},
		"a part":   {sent: "POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nok", url: "/a", body: "ok"},
		"nothing":  {},
		"no HTTP":  {sent: "\x16\x03\x01\n", body: "\x16\x03\x01\n"},
		"HTTP/2":   {http2: true},
		"preface":  {sent: h2Preface, http2: true},
		"half way": {sent: "GET /a HT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder(t)
			r.AddUnreached(Info{EndpointID: "ep-1", HTTP2: c.http2}, time.Now().Add(-3*time.Second), []byte(c.sent),
				"connection refused")
			e := awaitDone(t, r, 1)[0]
			if e.Error != want || e.Response != nil || e.Request.URL != c.url || string(e.Request.Body) != c.body ||
				e.Duration < 3*time.Second || len(r.List(Filter{Status: "failed"})) != 1 {
				t.Errorf("got %+v", e)
			}
		})
	}
}

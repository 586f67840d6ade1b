// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestPublic_Expect100Continue checks that the upstream decides whether the client's body comes.
func TestPublic_Expect100Continue(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t)
	w.Bind("public", "http://app.example.com", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		servicetest.DescribeRequest(rw, r)
	})
	for path, want := range map[string]int{"/yes": 200, "/no": 403} {
		asked, sent := false, &countingReader{Reader: strings.NewReader("the body")}
		ctx := httptrace.WithClientTrace(servicetest.Context(t), &httptrace.ClientTrace{Got100Continue: func() {
			asked = true
		}})
		req, err := http.NewRequestWithContext(ctx, "POST", "http://app.example.com"+path, sent)
		must.Succeed(t, err)
		req.Header.Set("Expect", "100-continue")
		client := w.NewBrowser()
		client.Transport.(*http.Transport).ExpectContinueTimeout = servicetest.MaxWait
		res, err := client.Do(req)
		must.Succeed(t, err)
		body := servicetest.ReadAll(t, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || asked != (want == 200) || asked != strings.HasSuffix(body, "|the body") ||
			asked != (sent.n.Load() > 0) {
			t.Errorf("%s: %d %q, told to go on: %t, bytes sent: %d", path, res.StatusCode, body, asked, sent.n.Load())
		}
	}
}

// countingReader counts what is read of it. It hides what kind of reader it is, so that the request
// is sent in chunks.
type countingReader struct {
	io.Reader
	n atomic.Int64
}

// Read reads and counts.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

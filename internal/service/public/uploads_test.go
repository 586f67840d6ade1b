// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestServer_StalledUploadBlocksNoOther(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	w := newTestServer(t, func(o *Options) {
		o.Handler = serveFunc(func(rw http.ResponseWriter, r *http.Request, ep *account.Endpoint, c Client) {
			if r.URL.Path == "/stalled" {
				<-leave // and nothing is read of the body
				return
			}
			echo(rw, r, ep, c)
		})
	})
	client := w.client()
	var uploads sync.WaitGroup
	defer uploads.Wait()
	defer close(leave)
	post := func(path string, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://app.example.com"+path, body)
		if err != nil {
			return nil, err
		}
		return client.Do(r)
	}
	stalled := &counted{left: 8 << 20, atLeast: uploadBuffer + 1, full: make(chan struct{})}
	uploads.Go(func() {
		if res, err := post("/stalled", stalled); err == nil {
			_ = res.Body.Close()
		}
	})
	<-stalled.full // the window of the stream is used up
	res, err := post("/other", strings.NewReader(strings.Repeat("x", 64<<10)))
	must.Succeed(t, err)
	if got := text(t, res); res.ProtoMajor != 2 || !strings.Contains(got, "xxxx") {
		t.Errorf("%s %.80s", res.Proto, got)
	}
}

// counted is a body of left zeros that closes full when atLeast of them have been read.
type counted struct {
	left, taken, atLeast int
	full                 chan struct{}
}

// Read takes zeros.
func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	before := c.taken
	c.left, c.taken = c.left-n, c.taken+n
	if before < c.atLeast && c.taken >= c.atLeast {
		close(c.full)
	}
	return n, nil
}

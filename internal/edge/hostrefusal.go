// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bytes"
	"io"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// webpackRefusal is the whole answer of webpack-dev-server, in version 4 with the status 200.
const webpackRefusal = "Invalid Host header"

// hostRefusals are what development servers answer when they do not expect the Host.
var hostRefusals = [][]byte{
	[]byte("Blocked request. This host ("), // Vite, and what is built on it
	[]byte(webpackRefusal),
	[]byte("Invalid host header"), // Starlette, FastAPI
	[]byte("Blocked host: "),      // Rails 6
	[]byte("Blocked hosts: "),     // Rails 7 and later
	[]byte("DisallowedHost"),      // Django
}

const (
	longestRefusal = 28       // bytes of the longest of hostRefusals
	refusalLimit   = 16 << 10 // bytes of an answer that are searched: a page of Rails begins with its styles
)

// watchForHostRefusal makes the report of this request tell the agent when the answer's body says
// that the upstream does not accept the Host. It looks at answers that may: 403, 400, and the one of
// webpack-dev-server 4, which is a 200.
func (x *exchange) watchForHostRefusal(res *http.Response) {
	agent := x.delivery.target.agent
	switch {
	case res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusBadRequest &&
		(res.StatusCode != http.StatusOK || res.ContentLength != int64(len(webpackRefusal))):
	case res.Body == http.NoBody, agent == nil, agent.Endpoint().HostMode == account.HostRewrite:
	default:
		res.Body = &refusalReader{ReadCloser: res.Body, found: &x.hostRefused, left: refusalLimit}
	}
}

// refusalReader searches the beginning of a body for one of hostRefusals.
type refusalReader struct {
	io.ReadCloser
	found *bool
	left  int    // bytes to search
	tail  []byte // last bytes that were read, where a text may have begun
}

// Read reads from the upstream.
func (r *refusalReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.left <= 0 || *r.found {
		return n, err
	}
	text := append(r.tail, p[:min(n, r.left)]...)
	r.left -= n
	for _, refusal := range hostRefusals {
		*r.found = *r.found || bytes.Contains(text, refusal)
	}
	r.tail = text[max(0, len(text)-longestRefusal+1):]
	return n, err
}

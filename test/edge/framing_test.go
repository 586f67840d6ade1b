// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_RefusesAmbiguousFramingFromPods holds the table that the public listener is held against
// with the connections of forwarders.
func TestEdge_RefusesAmbiguousFramingFromPods(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, r.URL.Path)
	}, func(b *tunnel.Bind) { b.HostMode = "rewrite" }) // the table's hosts are not the endpoint's
	cases := framingtest.Cases()
	delete(cases, "the preface of HTTP/2") // is served
	cases["HTTP/1.0 without a host"] = framingtest.Case{Send: cases["HTTP/1.0 without a host"].Send, Want: "200"}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
			_ = st.SetDeadline(time.Now().Add(servicetest.MaxWait))
			framingtest.Expect(t, st, c.Send, c.Want)
		})
		if len(c.Send) <= 1000 {
			t.Run(name+", byte by byte", func(t *testing.T) {
				t.Parallel()
				st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
				_ = st.SetDeadline(time.Now().Add(servicetest.MaxWait))
				framingtest.ExpectByteByByte(t, st, c.Send, c.Want)
			})
		}
	}
}

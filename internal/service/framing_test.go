// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/edge/framing/framingtest"
)

// TestEdge_RefusesAmbiguousFramingFromPods holds the table that the public listener is held against
// with the connections of forwarders.
func TestEdge_RefusesAmbiguousFramingFromPods(t *testing.T) {
	t.Parallel()
	p := newEdgePath(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, r.URL.Path)
	})
	cases := framingtest.Cases()
	delete(cases, "the preface of HTTP/2") // is served
	cases["HTTP/1.0 without a host"] = framingtest.Case{Send: cases["HTTP/1.0 without a host"].Send, Want: "200"}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := p.forwarder.open(openHeader(t, p.bound))
			_ = st.SetDeadline(time.Now().Add(patience))
			framingtest.Expect(t, st, c.Send, c.Want)
		})
		if len(c.Send) <= 1000 {
			t.Run(name+", byte by byte", func(t *testing.T) {
				t.Parallel()
				st := p.forwarder.open(openHeader(t, p.bound))
				_ = st.SetDeadline(time.Now().Add(patience))
				framingtest.ExpectByteByByte(t, st, c.Send, c.Want)
			})
		}
	}
}

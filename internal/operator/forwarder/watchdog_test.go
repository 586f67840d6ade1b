// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"io"
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/frozen"
)

const request = "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n"

// Clients of a frozen edge get a 503, connections that wait for a response are reset, idle ones
// stay, also if they send a request later than that, and all work again when the edge does.
func TestWatchdog_UnresponsiveEdge(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	var process frozen.Process
	e.setWrap(process.Conn)
	r := connected(t, e, shortTiming())
	kept, idle, db := r.dial(10080), r.dial(10080), r.dial(15432)
	for _, c := range []net.Conn{kept, idle} {
		if res, _ := get(t, c, "/"); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
	}
	session := r.edge.Live()
	_, _ = io.WriteString(db, request)
	_, _ = io.ReadFull(db, make([]byte, 10))
	process.Stop()
	defer process.Continue()
	_, _ = io.WriteString(kept, request)
	first := r.dial(10080)
	wantErrorPage(t, first, 503, "ERR_FL_3004")
	wantReset(t, kept)
	if st := r.edge.status(); st.Up || st.ID == "" || st.Error == "" {
		t.Errorf("status %+v", st)
	}
	waits := r.dial(10080)
	_, _ = io.WriteString(waits, request)
	_, _ = io.WriteString(idle, request)
	process.Continue()
	later := r.dial(10080)
	_, _ = io.WriteString(later, request)
	for _, c := range []net.Conn{waits, idle, later} {
		if res, body := response(t, c); res.StatusCode != 200 || body != "/" {
			t.Errorf("after that: %s", res.Status)
		}
	}
	if _, err := io.WriteString(db, "x"); err != nil {
		t.Error(err)
	}
	if r.edge.Live() != session || !r.edge.status().Up {
		t.Errorf("another session, or %+v", r.edge.status())
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// swallowing are two replicas, of which the one that gets the first stream never answers it. Its
// handler reads what the client sent first.
type swallowing struct {
	*runningForwarder
	swallowed chan *fakeReplica
	repeated  chan struct{} // gets a token for each stream of the other one
}

func startSwallowing(t *testing.T, reads int) *swallowing {
	t.Helper()
	s := &swallowing{swallowed: make(chan *fakeReplica, 1), repeated: make(chan struct{}, 100)}
	var first atomic.Bool
	s.runningForwarder = connectedTo(t, startReplicas(t, 2, func(r *fakeReplica, st *tunnel.Stream) {
		if !first.CompareAndSwap(false, true) {
			s.repeated <- struct{}{}
			respond(t.Context(), st)
			return
		}
		_, _ = io.ReadFull(st, make([]byte, reads))
		s.swallowed <- r
		_, _ = io.Copy(io.Discard, st) // until the stream breaks
	}), shortTiming())
	return s
}

const postRequest = "POST / HTTP/1.1\r\nHost: api.demo\r\nContent-Length: 1\r\n\r\nx"

// losses are the ways to lose a replica.
var losses = map[string]func(*fakeReplica){
	"killed":       (*fakeReplica).kill,
	"unresponsive": func(r *fakeReplica) { r.process.Stop() },
}

func TestAttempt_LostReplicaIsReplaced(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSwallowing(t, len(request))
			c := s.dial(10080)
			_, _ = io.WriteString(c, request)
			lose(wait.Receive(t, "the request", s.swallowed))
			if res, body := response(t, c); res.StatusCode != http.StatusOK || body != "/" {
				t.Errorf("%s %s", res.Status, body)
			}
		})
	}
}

func TestAttempt_LostReplicaGotNoInput(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSwallowing(t, 0)
			c := s.dial(15432)
			lose(wait.Receive(t, "the stream", s.swallowed))
			wait.Receive(t, "the stream with the other replica", s.repeated)
			_, _ = io.WriteString(c, request)
			if res, body := response(t, c); res.StatusCode != http.StatusOK || body != "/" {
				t.Errorf("%s %s", res.Status, body)
			}
		})
	}
}

func TestAttempt_UnsafeInputIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSwallowing(t, len(postRequest))
			c := s.dial(10080)
			_, _ = io.WriteString(c, postRequest)
			lose(wait.Receive(t, "the request", s.swallowed))
			if res, body := response(t, c); res.StatusCode != http.StatusServiceUnavailable ||
				!strings.Contains(body, "ERR_FL_3004") {
				t.Errorf("%s %s", res.Status, body)
			}
		})
	}
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		s := startSwallowing(t, 1)
		c := s.dial(15432)
		_, _ = io.WriteString(c, "x")
		wait.Receive(t, "the byte", s.swallowed).kill()
		wantReset(t, c)
	})
}

// TestAttempt_DrainingReplicaIsLeft checks a replica that refuses streams before it has told that it
// drains: everything goes to the other one.
func TestAttempt_DrainingReplicaIsLeft(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	r := connectedTo(t, startReplicas(t, 2, func(r *fakeReplica, st *tunnel.Stream) {
		if r.replica == "rp-1" {
			_ = st.Refuse(tunnel.RefusedDraining)
			return
		}
		served.Add(1)
		respond(t.Context(), st)
	}), shortTiming())
	for range 10 {
		if res, _ := get(t, r.dial(10080), "/"); res.StatusCode != http.StatusOK {
			t.Error(res.Status)
		}
	}
	if served.Load() != 10 {
		t.Errorf("%d streams served", served.Load())
	}
}

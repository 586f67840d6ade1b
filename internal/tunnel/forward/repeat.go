// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// An attempt whose replica of the edge is lost, or does not respond, before it has opened the
// stream is repeated with another replica, if the first one has done nothing that must not be done
// twice: it got no input, or only a request without a body whose method is safe.

// giveUp ends the wait for the edge to open the stream, if the attempt can be repeated with another
// replica.
func (t *attempt) giveUp() bool {
	if !t.canRepeat() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Load() {
		return false
	}
	t.givenUp = true
	_ = t.stream.SetReadDeadline(time.Unix(1, 0))
	return true
}

// isReplicaLost reports whether the error that ended the attempt is the loss of the stream's
// replica, rather than an answer of the replica's or the client's end.
func (t *attempt) isReplicaLost(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return t.givenUp
	case errors.As(err, new(*tunnel.RefusedError)), errors.As(err, new(*tunnel.ResetError)),
		errors.Is(err, errClientGone):
		return false
	}
	return err != nil
}

// canRepeat reports whether another replica serves the session, and may be sent what the client has
// sent.
func (t *attempt) canRepeat() bool {
	if !anotherReplicaServes(t.stream.Stream) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.SessionDeadline) && t.buffered.canRepeat(t.URL.Scheme)
}

// anotherReplicaServes reports whether the session has a leg for new streams besides that of the
// stream.
func anotherReplicaServes(st *tunnel.Stream) bool {
	return slices.ContainsFunc(st.Session().Legs(), func(l tunnel.Leg) bool {
		return l.ReplicaID != "" && l.ReplicaID != st.ReplicaID() && !l.Draining && !l.Unresponsive
	})
}

// canRepeat reports whether the input may be sent to two replicas: there is none, or it is one http
// request that may be sent twice, or the beginning of one, on which the edge has not acted.
func (e *requestBuffer) canRepeat(scheme string) bool {
	switch {
	case len(e.buf) == 0:
		return true
	case scheme != "http" || bytes.HasPrefix([]byte(http2PrefaceHead), e.buf[:min(len(e.buf), len(http2PrefaceHead))]):
		return false
	case !headComplete(e.buf):
		return !e.full()
	}
	input := bytes.NewReader(e.buf)
	head := bufio.NewReader(input)
	r, err := http.ReadRequest(head)
	if err != nil || r.ContentLength != 0 || len(r.TransferEncoding) > 0 || head.Buffered()+input.Len() > 0 {
		return false
	}
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method)
}

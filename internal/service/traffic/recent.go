// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
)

// Limits of the recent requests.
const (
	ringSlots     = 64 // requests that an endpoint keeps; as many failing ones
	slotText      = 148
	maxMethodText = 16
	maxCallerText = 72 // the path has what is left
)

// ringSize is the memory of a ring in bytes.
const ringSize = int64(unsafe.Sizeof(ring{}))

// ring has the last requests of an endpoint. Each slot has a lock of its own, so that requests that
// end at the same time do not wait for each other.
type ring struct {
	next  atomic.Uint64 // requests so far
	slots [ringSlots]slot
}

// slot is one request. Its texts are copied, so that nothing of the request stays in memory.
type slot struct {
	mu         sync.Mutex
	number     uint64 // number of the request in its ring, from 1; 0 = the slot is empty
	start      int64  // in Unix nanoseconds
	duration   time.Duration
	in, out    int64
	ip         netip.Addr // where there is no pod
	code       account.Code
	status     int32
	http       bool
	protoMajor uint8
	protoMinor uint8
	cut        bool // the path was longer

	methodEnd, callerEnd, pathEnd uint8
	text                          [slotText]byte
}

// put records a finished request or connection.
func (r *ring) put(s *edge.RequestRecord) {
	n := r.next.Add(1)
	e := &r.slots[(n-1)%ringSlots]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.number > n {
		return // the ring was filled meanwhile
	}
	e.number, e.start, e.duration = n, s.StartedAt.UnixNano(), s.Duration
	e.in, e.out = s.Traffic.Totals()
	e.code, e.status, e.http = s.Code, int32(s.Status), s.Request != nil
	method, path := "", ""
	if req := s.Request; req != nil {
		method, path = req.Method, requestPath(req)
		e.protoMajor, e.protoMinor = uint8(req.ProtoMajor), uint8(req.ProtoMinor)
	}
	end := copy(e.text[:maxMethodText], method)
	e.methodEnd = uint8(end)
	end += e.setCaller(e.text[end:end+maxCallerText], s.Client)
	e.callerEnd = uint8(end)
	pathLen := copy(e.text[end:], path)
	e.pathEnd, e.cut = uint8(end+pathLen), pathLen < len(path)
}

// setCaller writes the client's pod into text, if it is known, and returns the length; else it sets
// the address.
func (e *slot) setCaller(text []byte, client *edge.ClientInfo) int {
	e.ip = netip.Addr{}
	switch {
	case client == nil:
		return 0
	case client.StatedPod == nil:
		e.ip = client.ClientIP
		return 0
	}
	n := copy(text, client.StatedPod.Namespace)
	n += copy(text[n:], "/")
	return n + copy(text[n:], client.StatedPod.Name)
}

// requestPath returns the path as the client sent it, without the query.
func requestPath(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") { // an absolute URL may have a password
		return r.URL.EscapedPath()
	}
	if end := strings.IndexAny(r.RequestURI, "?#"); end >= 0 {
		return r.RequestURI[:end]
	}
	return r.RequestURI
}

// list appends the requests of the ring, in any order.
func (r *ring) list(all []Request, replica string) []Request {
	if r == nil {
		return all
	}
	for i := range r.slots {
		e := &r.slots[i]
		e.mu.Lock()
		if e.number != 0 {
			all = append(all, e.request(replica))
		}
		e.mu.Unlock()
	}
	return all
}

// request returns the request of the slot, whose lock must be held.
func (e *slot) request(replica string) Request {
	text := func(from, to uint8) string { return strings.ToValidUTF8(string(e.text[from:to]), "�") }
	r := Request{
		ID:     fmt.Sprintf("%s-%x-%x", cmp.Or(replica, "rq"), e.start, e.number),
		At:     time.Unix(0, e.start).UTC(),
		Method: text(0, e.methodEnd), Path: text(e.callerEnd, e.pathEnd), Proto: "tcp",
		Status: int(e.status), Code: e.code, Duration: e.duration, BytesIn: uint64(e.in), BytesOut: uint64(e.out),
		Caller: text(e.methodEnd, e.callerEnd), Replica: replica,
	}
	if e.cut {
		r.Path += "…"
	}
	if e.http {
		r.Proto = fmt.Sprintf("HTTP/%d.%d", e.protoMajor, e.protoMinor)
	}
	if e.ip.IsValid() {
		r.Caller = e.ip.String()
	}
	return r
}

// newestRequests sorts requests, and returns the limit newest ones.
func newestRequests(all []Request, limit int) []Request {
	slices.SortFunc(all, func(a, b Request) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.ID, b.ID)) })
	return all[:min(len(all), max(limit, 0))]
}

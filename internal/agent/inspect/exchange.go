// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The kinds of a Frame.
const (
	FrameText   = "text"   // a text message of a WebSocket
	FrameBinary = "binary" // a binary message of a WebSocket
	FrameClose  = "close"  // a close frame of a WebSocket
	FramePing   = "ping"   // a ping of a WebSocket
	FramePong   = "pong"   // a pong of a WebSocket
	FrameEvent  = "event"  // the lines of a server-sent event
	FrameGRPC   = "grpc"   // a message, without its prefix of 5 bytes
)

// Exchange is a request with its answer, as it stood when it was asked for. It must not be changed.
type Exchange struct {
	ID          string // IDs of one agent sort by the start of their exchanges
	Start       time.Time
	EndpointID  string
	EndpointURL string // the endpoint's URL; a labelled tunnel's labels, as in "app=api site=a"
	Caller      Caller
	Request     Message
	Response    *Message      // nil = there is none yet, or none came (Error)
	Duration    time.Duration // so far, until Done
	FirstByte   time.Duration // from Start to the first byte of the answer; 0 = none came yet
	Frames      []Frame       // oldest first
	// FramesDropped counts the frames before those that are kept.
	FramesDropped int
	// Raw means that the bytes are not HTTP that can be shown: the bodies of Request and Response
	// are what the two sides sent.
	Raw      bool
	Lost     int64  // bytes that were not recorded because the inspector could not keep up
	Error    string // why the exchange broke off; "" = it did not
	ReplayOf string // id of the exchange that was replayed; "" = a caller's request
	Done     bool
}

// GRPCStatus returns the status of a gRPC call and its message; -1 if the exchange has none. It is in
// the trailer, or in the header of an answer without messages.
func (e *Exchange) GRPCStatus() (code int, message string) {
	if e.Response == nil || !strings.HasPrefix(e.Response.Header.Get("Content-Type"), "application/grpc") {
		return -1, ""
	}
	for _, h := range []http.Header{e.Response.Trailer, e.Response.Header} {
		if code, err := strconv.Atoi(h.Get("Grpc-Status")); err == nil && code >= 0 {
			if message, err = url.PathUnescape(h.Get("Grpc-Message")); err != nil {
				message = h.Get("Grpc-Message")
			}
			return code, message
		}
	}
	return -1, ""
}

// Caller is who sent a request. Empty fields are unknown.
type Caller struct {
	IP             string `json:"ip,omitempty"`
	Pod            string `json:"pod,omitempty"`
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount string `json:"service_account,omitempty"`
	Cluster        string `json:"cluster,omitempty"`
	Person         string `json:"person,omitempty"`
}

// Message is a request or an answer.
type Message struct {
	Method  string      // the request's; "" in an answer
	URL     string      // the request's, as on the request line, e.g. "/path?query"
	Proto   string      // e.g. "HTTP/1.1"
	Status  int         // the answer's; 0 in a request
	Header  http.Header // with Host
	Trailer http.Header
	// Body is what was sent, without the framing of HTTP (chunks, frames), at most 1 MiB. A
	// Content-Encoding is as it was.
	Body      []byte
	BodySize  int64 // what was sent, whether it is in Body or not
	Truncated bool  // Body is not all of it
}

// Frame is a message within the body of an exchange.
type Frame struct {
	At         time.Duration // since Exchange.Start
	FromClient bool
	Kind       string // FrameText, …
	Data       []byte // at most 64 KiB
	Size       int64  // bytes of the whole frame
}

// Filter selects exchanges. The zero value selects all.
type Filter struct {
	Endpoint string // an endpoint's id or URL
	Method   string // e.g. "GET", in any case
	Status   string // "404", a class as in "5xx", "failed" (4xx, 5xx, broken off) or "open" (not Done)
	Path     string // a part of the URL, in any case
	Caller   string // a part of any field of the caller, in any case
	Text     string // a part of URL, headers, kept bodies or frames, in any case
	After    string // an id: only exchanges that began later
	Before   string // an id: only exchanges that began earlier
	Limit    int    // 0 = no limit
}

// Change is how a replayed request differs from the one before. The zero value repeats it.
type Change struct {
	Method string      // "" = as it was
	Path   string      // with the query, e.g. "/path?a=b"; "" = as it was
	Header http.Header // all of it; nil = as it was. A value that is Masked is the one before.
	Body   []byte      // nil = as it was
}

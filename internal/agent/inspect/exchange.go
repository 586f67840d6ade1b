// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/http"
	"time"
)

// The kinds of a Frame.
const (
	FrameText   = "text"   // of a WebSocket
	FrameBinary = "binary" // of a WebSocket
	FrameClose  = "close"  // of a WebSocket
	FramePing   = "ping"   // of a WebSocket
	FramePong   = "pong"   // of a WebSocket
	FrameEvent  = "event"  // of server-sent events: its lines
	FrameGRPC   = "grpc"   // a message, without its prefix of 5 bytes
)

// Exchange is a request with its answer, as it stood when it was asked for. It must not be changed.
type Exchange struct {
	ID          string // IDs of one agent sort by the start of their exchanges
	Start       time.Time
	EndpointID  string
	EndpointURL string // of a labelled tunnel its labels, as in "app=api site=a"
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

// Caller is who sent a request. Empty fields are unknown.
type Caller struct {
	IP             string
	Pod            string
	Namespace      string
	ServiceAccount string
	Cluster        string
	Person         string
}

// Message is a request or an answer.
type Message struct {
	Method  string      // of a request
	URL     string      // of a request: as on the request line, e.g. "/path?query"
	Proto   string      // e.g. "HTTP/1.1"
	Status  int         // of an answer
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
	Size       int64  // of the whole frame
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

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/webpage"
)

// Recorder is what the pages show. The exchanges that it returns do not change: a later state of
// one is another value with the same ID.
type Recorder interface {
	List(f inspect.Filter) []*inspect.Exchange // newest first
	Get(id string) (*inspect.Exchange, bool)
	Subscribe() (wake <-chan struct{}, cancel func())
	Version() uint64 // differs after each change
	Clear()
	Dropped() int64 // bytes
	Endpoints() []inspect.Endpoint
	Replay(ctx context.Context, id string, c inspect.Change) (newID string, err error)
}

// Options are what New needs. Fields are optional unless their comment says that they are required.
type Options struct {
	Recorder Recorder // required
	// Marked returns the names of the headers that the traffic policy of an endpoint marks as
	// secret; nil = those that the Recorder's endpoint has.
	Marked  func(endpointID string) []string
	Version string // the agent's version
	Logger  *slog.Logger
	Clock   func() time.Time
	Limits  Limits
}

// Limits of the pages. Zero values mean the defaults.
type Limits struct {
	UpdateInterval time.Duration // between two updates of a stream; 125 ms
	Heartbeat      time.Duration // between two heartbeats of a stream; 15 s
	WriteTimeout   time.Duration // for a browser to accept what a stream writes; 10 s
	Streams        int           // streams of live updates at a time; 32
}

func (o *Options) setDefaults() {
	l := &o.Limits
	l.UpdateInterval, l.Heartbeat = cmp.Or(l.UpdateInterval, 125*time.Millisecond), cmp.Or(l.Heartbeat, 15*time.Second)
	l.WriteTimeout, l.Streams = cmp.Or(l.WriteTimeout, 10*time.Second), cmp.Or(l.Streams, 32)
	if o.Marked == nil {
		o.Marked = o.markedOf
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
}

// markedOf is the default of Marked.
func (o *Options) markedOf(endpointID string) []string {
	for _, e := range o.Recorder.Endpoints() {
		if e.ID == endpointID {
			return e.Marked
		}
	}
	return nil
}

type server struct {
	opt     Options
	mux     *http.ServeMux
	pages   webpage.Templates
	static  *webpage.Static
	token   string // forms carry it, against requests that a page of another origin makes
	streams chan struct{}
}

// New returns the handler of the pages, for the root of a server that checks the Host header and
// the origin of writes (inspect.Server). It is safe for concurrent use. Streams of live updates end
// when the context of their request does.
func New(opt Options) http.Handler {
	opt.setDefaults()
	s := &server{opt: opt, mux: http.NewServeMux(), token: rand.Text(),
		streams: make(chan struct{}, opt.Limits.Streams)}
	s.static = webpage.NewStatic("/static/", files)
	s.pages = webpage.ParseTemplates(files, nil)
	s.mux.Handle("GET /static/{file}", s.static)
	for pattern, handle := range map[string]func(*call) error{
		"/":                                   s.notFound,
		"GET /{$}":                            s.list,
		"GET /live":                           s.liveList,
		"POST /clear":                         s.clear,
		"GET /har":                            s.exportList,
		"POST /har":                           s.exportList,
		"GET /requests/{id}":                  s.detail,
		"POST /requests/{id}":                 s.reveal,
		"GET /requests/{id}/live":             s.liveDetail,
		"GET /requests/{id}/edit":             s.edit,
		"POST /requests/{id}/edit":            s.edit,
		"POST /requests/{id}/replay":          s.replay,
		"GET /requests/{id}/har":              s.exportOne,
		"POST /requests/{id}/har":             s.exportOne,
		"GET /requests/{id}/curl":             s.curl,
		"POST /requests/{id}/curl":            s.curl,
		"GET /requests/{id}/{side}/image":     s.image,
		"POST /requests/{id}/{side}/download": s.download,
	} {
		s.mux.HandleFunc(pattern, s.handler(handle))
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeaders(w.Header())
	s.mux.ServeHTTP(w, r)
}

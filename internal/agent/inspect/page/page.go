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
	// Marked returns the names of the headers that the traffic policy of an endpoint marks as secret.
	Marked(endpointID string) []string
	Replay(ctx context.Context, id string, c inspect.Change) (newID string, err error)
}

// Options are what New needs. Fields are optional unless their comment says that they are required.
type Options struct {
	Recorder Recorder // required
	Version  string   // the agent's version
	Logger   *slog.Logger
	Limits   Limits
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
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

// server has what all pages need, and finds the page of a request.
type server struct {
	opt     Options
	mux     *http.ServeMux
	pages   webpage.Templates
	static  *webpage.Static
	token   string // forms carry it, against requests that a page of another origin makes
	streams *streams
}

// New returns the handler of the pages, for the root of a server that checks the Host header and
// the origin of writes (inspect.Server). It is safe for concurrent use. Streams of live updates end
// when the context of their request does.
func New(opt Options) http.Handler {
	opt.setDefaults()
	r := opt.Recorder
	s := &server{opt: opt, mux: http.NewServeMux(), token: rand.Text(),
		streams: &streams{recorder: r, limits: opt.Limits, slots: make(chan struct{}, opt.Limits.Streams)}}
	list, detail, replay := &lists{r}, &details{r}, &replays{r}
	export := &exports{recorder: r, version: opt.Version, logger: opt.Logger}
	s.static = webpage.NewStatic("/static/", files)
	s.pages = webpage.ParseTemplates(files, nil)
	s.mux.Handle("GET /static/{file}", s.static)
	for pattern, handle := range map[string]func(*call) error{
		"/":                                   s.notFound,
		"GET /{$}":                            list.list,
		"GET /live":                           list.live,
		"POST /clear":                         list.clear,
		"GET /har":                            export.exportList,
		"POST /har":                           export.exportList,
		"GET /requests/{id}":                  s.ofExchange(detail.detail),
		"POST /requests/{id}":                 s.ofExchange(detail.reveal),
		"GET /requests/{id}/live":             s.ofExchange(detail.live),
		"GET /requests/{id}/edit":             s.ofExchange(replay.edit),
		"POST /requests/{id}/edit":            s.ofExchange(replay.edit),
		"POST /requests/{id}/replay":          s.ofExchange(replay.replay),
		"GET /requests/{id}/har":              s.ofExchange(export.exportOne),
		"POST /requests/{id}/har":             s.ofExchange(export.exportOne),
		"GET /requests/{id}/curl":             s.ofExchange(export.curl),
		"POST /requests/{id}/curl":            s.ofExchange(export.curl),
		"GET /requests/{id}/{side}/image":     s.ofExchange(detail.image),
		"POST /requests/{id}/{side}/download": s.ofExchange(detail.download),
	} {
		s.mux.HandleFunc(pattern, s.handler(handle))
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webpage.SetHeaders(w.Header())
	s.mux.ServeHTTP(w, r)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// running is an agent under test that keeps running.
type running struct {
	*agent.Agent
	t      *testing.T
	events chan agent.Event
	stop   func() // ends it and waits
}

// start runs an agent of the service.
func start(t *testing.T, s *servicetest.Server, change func(*agent.Options)) *running {
	t.Helper()
	r := &running{t: t, events: make(chan agent.Event, 100_000)}
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + s.Addrs.Service.String(),
			Address: s.Addrs.Service.String(), TLS: s.ClientTLS(), Token: func() string { return s.Authtoken },
			MaxBackoff: 100 * time.Millisecond},
		ShutdownOptions: agent.ShutdownOptions{UnbindTimeout: 20 * time.Second},
		InstanceID:      "in-" + t.Name(), KeepRunning: true, RebindDelay: 50 * time.Millisecond,
		Observer: observerFunc(func(e agent.Event) {
			switch e.(type) {
			case agent.Connection, agent.Request:
			default:
				r.events <- e
			}
		})}
	if change != nil {
		change(&o)
	}
	r.Agent = agent.New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended: %v", err)
		}
		ended <- nil
	}
	t.Cleanup(r.stop)
	return r
}

// next returns the next event of a type for which wanted returns true; others are skipped.
func next[E agent.Event](r *running, wanted func(E) bool) E {
	r.t.Helper()
	for {
		if e, ok := servicetest.Receive(r.t, r.events, fmt.Sprintf("%T", *new(E))).(E); ok && wanted(e) {
			return e
		}
	}
}

// online waits until these keys are online and returns the events by key.
func (r *running) online(keys ...string) map[string]agent.Online {
	r.t.Helper()
	all := make(map[string]agent.Online, len(keys))
	for _, key := range keys {
		all[key] = agent.Online{}
	}
	for left := len(keys); left > 0; left-- {
		e := next(r, func(e agent.Online) bool {
			known, ok := all[e.Key]
			return ok && known.EndpointID == ""
		})
		all[e.Key] = e
	}
	return all
}

// endpoint returns the http endpoint http://KEY.demo, whose upstream answers with its version.
func endpoint(t *testing.T, key, upstream string) agent.Endpoint {
	t.Helper()
	url, err := account.ParseEndpointURL("http://" + key + ".demo")
	must.Succeed(t, err)
	to, err := agent.ParseUpstream("http", upstream)
	must.Succeed(t, err)
	return agent.Endpoint{Key: key, URL: url, Binding: account.BindingKubernetes, Upstream: to,
		Dial: new(net.Dialer).DialContext}
}

// upstream serves HTTP that answers with its name.
func upstream(t *testing.T, name string) string {
	return servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

// load sends requests to an endpoint from several connections until it is stopped.
type load struct {
	t       *testing.T
	stop    context.CancelFunc
	ended   chan struct{}
	answers atomic.Int64
	failed  atomic.Pointer[string] // the first failure
	last    atomic.Pointer[string] // the latest answer
}

// startLoad sends requests over kept connections and over new ones.
func startLoad(t *testing.T, f *servicetest.Forwarder, bound tunnel.Bound) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(servicetest.Context(t))
	l := &load{t: t, stop: cancel, ended: make(chan struct{}, 4)}
	for i := range cap(l.ended) {
		tr := f.Transport(bound)
		tr.DisableKeepAlives = i%2 == 0
		go func() {
			defer func() { l.ended <- struct{}{} }()
			for ctx.Err() == nil {
				if err := l.request(ctx, tr, bound.URL); err != nil && ctx.Err() == nil {
					text := err.Error()
					l.failed.CompareAndSwap(nil, &text)
				}
			}
		}()
	}
	t.Cleanup(l.end)
	l.progress()
	return l
}

func (l *load) request(ctx context.Context, tr *http.Transport, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	text := string(body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, strings.ReplaceAll(text, "\n", " "))
	}
	if err == nil {
		l.answers.Add(1)
		l.last.Store(&text)
	}
	return err
}

// progress waits for some further answers.
func (l *load) progress() {
	l.t.Helper()
	until := l.answers.Load() + 20
	servicetest.Eventually(l.t, "answers to requests", func() bool {
		return l.answers.Load() >= until || l.failed.Load() != nil
	})
}

// end stops the load and reports failures.
func (l *load) end() {
	l.t.Helper()
	l.stop()
	for range cap(l.ended) {
		<-l.ended
	}
	for range cap(l.ended) {
		l.ended <- struct{}{} // for a second call
	}
	if why := l.failed.Load(); why != nil {
		l.t.Errorf("a request failed: %s", *why)
	}
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }

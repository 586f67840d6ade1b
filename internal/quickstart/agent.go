// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect/page"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// endpointURL is what the agent binds.
const endpointURL = "http://hello.demo"

// startAgent starts the hello page if there is no target, the inspector, and the agent with its
// lines in Out, and waits until the endpoint is online.
func (q *quickstart) startAgent(
	ctx context.Context, addrs service.Addresses, tls *tls.Config, token string,
) (agent.Online, error) {
	url, err := account.ParseEndpointURL(endpointURL)
	if err != nil {
		return agent.Online{}, err
	}
	if err := q.startHelloPage(ctx); err != nil {
		return agent.Online{}, err
	}
	recorder, err := q.startInspector(ctx)
	if err != nil {
		return agent.Online{}, err
	}
	q.lines = &lines{online: make(chan agent.Online, 1)}
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: addrs.BaseURL, Address: addrs.Service.String(), TLS: tls,
			Token: func() string { return token }},
		UpstreamOptions: agent.UpstreamOptions{Inspect: recorder, InspectURL: q.summary.inspector},
		ShutdownOptions: agent.ShutdownOptions{DrainTimeout: drainTimeout,
			// The endpoint of a folder that stays keeps its id.
			LeaveBound: func() bool { return q.options.DataDir != "" }},
		InstanceID: accountName, Observer: q.lines, Logger: q.options.Logger,
		Endpoints: []agent.Endpoint{{URL: url, Binding: account.BindingKubernetes, Upstream: q.target,
			HostMode: account.HostPassthrough, Description: "quick start"}},
	}
	q.run("the agent", func(ctx context.Context) error {
		q.lines.screen = screen.New(q.options.Out, screen.Options{Color: q.options.Color})
		defer q.lines.screen.Close()
		return agent.Run(ctx, o)
	})
	return await(ctx, q, "the agent", q.lines.online)
}

// startHelloPage serves the page that stands in for a target, and makes it the target.
func (q *quickstart) startHelloPage(ctx context.Context) error {
	if q.summary.target = q.target.String(); q.target.Port != 0 {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(0))
	if err != nil {
		return fmt.Errorf("the hello page: %w", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(serveHello), ReadHeaderTimeout: 10 * time.Second}
	q.run("the hello page", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	q.target = agent.Upstream{Scheme: "http", Host: loopback, Port: l.Addr().(*net.TCPAddr).Port,
		Protocol: agent.ProtocolHTTP1}
	q.summary.target = "the built-in page " + q.target.String()
	return nil
}

func serveHello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "Hello from behind Fairlead. Your %s %s came through forwarder, service and agent.\n",
		r.Method, r.URL.Path)
}

// startInspector serves what the agent's endpoint carries to browsers of this machine.
func (q *quickstart) startInspector(ctx context.Context) (*inspect.Recorder, error) {
	port, err := q.freePort(ctx, inspectorPort)
	if err != nil {
		return nil, err
	}
	l, err := inspect.Listen(ctx, address(port), false)
	if err != nil {
		return nil, fmt.Errorf("the inspector: %w", err)
	}
	recorder := inspect.New()
	server := inspect.Serve(l, recorder, inspect.ServerOptions{Host: loopback,
		Pages: page.New(page.Options{Recorder: recorder, Version: version.String()})})
	q.run("the inspector", func(ctx context.Context) error {
		<-ctx.Done()
		server.Close()
		recorder.Close()
		return nil
	})
	q.summary.inspector = server.URL()
	return recorder, nil
}

// lines is the agent's observer: it passes on what happens after the summary was printed.
type lines struct {
	online chan agent.Online // online gets the first one.
	screen *screen.Screen
	shown  atomic.Bool
}

// Observe implements agent.Observer.
func (l *lines) Observe(e agent.Event) {
	switch e := e.(type) {
	case agent.Online:
		if !e.Reconnected {
			l.online <- e
			return
		}
	case agent.Stopping, agent.Stopped:
		return // all parts stop
	}
	if l.shown.Load() {
		l.screen.Observe(e)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quickstart runs the service, an agent and a forwarder in one process, for a first look
// without a cluster: a call to the forwarder takes the way of a pod's call. All listeners are on the
// loopback interface. Options come from `fairlead-server quickstart`; each part is the one that its
// program runs. The forwarder's objects, which a manager writes in a cluster, are fixed.
package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Options of a quick start. Out, Logger and ForceStop are required.
type Options struct {
	Target    string          // Target is PORT, HOST:PORT or URL of a web server; "" = a page of its own.
	DataDir   string          // DataDir holds the service's data and stays; "" = a temporary folder.
	Out       io.Writer       // Out gets the summary and a line for each request; it is safe for concurrent use.
	Color     bool            // Color is for Out.
	Logger    *slog.Logger    // Logger gets the logs of all parts.
	ForceStop <-chan struct{} // ForceStop ends live traffic at once when it is closed.
}

const (
	loopback = "127.0.0.1"
	// startTimeout bounds the start of each part; only a broken machine needs it.
	startTimeout = 30 * time.Second
	// drainTimeout is how long live traffic may take to end when a part stops.
	drainTimeout = time.Second
)

// Ports that people expect, or remember easily. Another free one is taken where one is in use.
const (
	servicePort   = 8443
	inspectorPort = 4040
	forwarderPort = 8088
)

// quickstart is the parts that run, in the order of their start.
type quickstart struct {
	options Options
	dir     string
	target  agent.Upstream
	parts   []part
	failed  chan error // failed gets why a part has ended by itself.
	lines   *lines
	summary summary
}

// part is one part of the product, which runs until it is stopped.
type part struct {
	stop context.CancelFunc
	done chan struct{} // done is closed when the part has ended.
}

var errEnded = errors.New("has ended without an error")

// Run starts all parts, makes a call through them, prints the summary, and serves until ctx is done.
// Then it stops the parts, in the opposite order, and removes the temporary folder. An error names
// the part that could not start or has failed; a Target that is none is account.CodeInvalid.
func Run(ctx context.Context, o Options) (err error) {
	q := &quickstart{options: o, failed: make(chan error, 1)}
	if o.Target != "" {
		if q.target, err = parseTarget(o.Target); err != nil {
			return err
		}
	}
	if err := q.openDir(); err != nil {
		return err
	}
	err = q.serve(ctx)
	if ctx.Err() != nil {
		err = nil // also a start that was interrupted
		_, _ = fmt.Fprintln(o.Out, "Stopping.")
	}
	q.stop()
	return errors.Join(err, q.removeDir())
}

// serve starts all parts, prints the summary and waits until ctx is done or a part fails.
func (q *quickstart) serve(ctx context.Context) error {
	began := time.Now()
	if err := q.start(ctx); err != nil {
		return err
	}
	q.summary.took = time.Since(began)
	if err := q.summary.print(q.options.Out, q.options.Color); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	q.lines.shown.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case err := <-q.failed:
		return err
	}
}

// parseTarget parses what calls are forwarded to, as `fairlead http` does.
func parseTarget(target string) (agent.Upstream, error) {
	u, err := agent.ParseUpstream("http", target)
	if fields := account.FieldsOf(err); len(fields) > 0 {
		err = account.Invalid("TARGET", fields[0].Value, fields[0].Rule)
	}
	return u, err
}

// openDir makes the folder of the data where it is missing.
func (q *quickstart) openDir() (err error) {
	if q.dir = q.options.DataDir; q.dir != "" {
		if err := os.MkdirAll(q.dir, 0o700); err != nil {
			return fmt.Errorf("--data-dir %q: %w; name a folder that this user may make and write", q.dir, err)
		}
		return nil
	}
	if q.dir, err = os.MkdirTemp("", "fairlead-quickstart-"); err != nil {
		return fmt.Errorf("making a temporary folder: %w; name one with --data-dir", err)
	}
	q.summary.temporaryDir = q.dir
	return nil
}

// removeDir removes a temporary folder.
func (q *quickstart) removeDir() error {
	if q.options.DataDir != "" {
		return nil
	}
	if err := os.RemoveAll(q.dir); err != nil {
		return fmt.Errorf("removing the temporary folder: %w; remove %s by hand", err, q.dir)
	}
	return nil
}

// start starts the parts one after the other, each with what it needs of the ones before.
func (q *quickstart) start(ctx context.Context) (err error) {
	st, err := store.Open(ctx, store.Options{DataDir: q.dir})
	if err != nil {
		return fmt.Errorf("the store: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	accountID, err := ensureAccount(ctx, st, q.dir)
	if err != nil {
		return err
	}
	addrs, err := q.startService(ctx)
	if err != nil {
		return err
	}
	made, err := makeSecrets(ctx, st, accountID, q.dir)
	if err != nil {
		return fmt.Errorf("the credentials: %w", err)
	}
	q.summary.dashboard, q.summary.key = addrs.BaseURL+"/ui/", made.apiKey
	tls, err := trust.Options{CASHA256: addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		return err
	}
	endpoint, err := q.startAgent(ctx, addrs, tls, made.agent)
	if err != nil {
		return err
	}
	if q.summary.forwarder, err = q.startForwarder(ctx, addrs, tls, made, endpoint.EndpointID); err != nil {
		return err
	}
	q.summary.targetDown, err = q.call(ctx)
	return err
}

// startService starts the service and waits until it is ready.
func (q *quickstart) startService(ctx context.Context) (service.Addresses, error) {
	port, err := q.freePort(ctx, servicePort)
	if err != nil {
		return service.Addresses{}, err
	}
	ready := make(chan service.Addresses, 1)
	o := service.Options{
		ListenOptions:        service.ListenOptions{Addr: address(port), BaseURL: "https://" + address(port)},
		DataOptions:          service.DataOptions{DataDir: q.dir, EndpointGrace: store.DefaultGrace},
		ObservabilityOptions: service.ObservabilityOptions{AccessLogSample: 1},
		DrainTimeout:         drainTimeout, Logger: q.options.Logger, ForceStop: q.options.ForceStop,
		OnReady: func(a service.Addresses) { ready <- a },
	}
	q.run("the service", func(ctx context.Context) error { return service.Run(ctx, o) })
	return await(ctx, q, "the service", ready)
}

// run starts a part. One that ends before it is stopped is a failure.
func (q *quickstart) run(name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	p := part{stop: stop, done: make(chan struct{})}
	q.parts = append(q.parts, p)
	go func() {
		defer close(p.done)
		err := run(ctx)
		switch {
		case ctx.Err() == nil:
			select {
			case q.failed <- fmt.Errorf("%s: %w", name, cmp.Or(err, errEnded)):
			default: // an earlier failure ends all
			}
		case err != nil:
			q.options.Logger.Warn("stopping "+name, "error", err)
		}
	}()
}

// stop stops the parts, the last one first, so that each one stops before those that it uses.
func (q *quickstart) stop() {
	for _, p := range slices.Backward(q.parts) {
		p.stop()
		<-p.done
	}
}

// await returns what a starting part reports.
func await[T any](ctx context.Context, q *quickstart, name string, from <-chan T) (reported T, err error) {
	select {
	case reported = <-from:
		return reported, nil
	case err = <-q.failed:
		return reported, err
	case <-ctx.Done():
		return reported, ctx.Err()
	case <-time.After(startTimeout):
		return reported, fmt.Errorf("%s did not start within %s", name, startTimeout)
	}
}

// freePort returns the preferred port of the loopback interface, or another one where that is in use
// or is the target's: a target that does not listen yet must not find a part of this process there.
func (q *quickstart) freePort(ctx context.Context, preferred int) (int, error) {
	for _, port := range []int{preferred, 0, 0} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address(port))
		if err != nil {
			continue
		}
		free := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, err
		}
		if free != q.target.Port {
			return free, nil
		}
	}
	return 0, errors.New("no free port was found on " + loopback)
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

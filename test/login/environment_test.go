// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// maxWait is how long a test waits for an event before it fails.
const maxWait = 2 * time.Minute

// domain is the parent of all endpoints' hosts. They are one site to browsers, so that a hostile
// neighbour could send requests with cookies.
const domain = "edge.test"

// apiHost is the host and port of the service's base URL.
const apiHost = "api.fairlead.test:8443"

// providersProgram names the program of test/idp.
const providersProgram = "FAIRLEAD_IDP"

// env is shared by all tests, each with an account and hosts of its own; nil without providers.
var env *environment

// environment is a running service and its identity providers.

type environment struct {
	dir   string
	at    service.Addresses
	log   logbuffer.Buffer // the service's
	certs certificates
	store *store.Store // beside the running service, as its commands open it
	idp   *providers

	stop     context.CancelFunc
	finished chan error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	program := os.Getenv(providersProgram)
	if program == "" {
		fmt.Fprintln(os.Stderr, "test/login: skipped; make idp builds the identity providers, and "+providersProgram+
			" names them")
		return 0
	}
	dns, err := startDNS()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the DNS server:", err)
		return 1
	}
	net.DefaultResolver = dns.resolver() // before the service starts
	if env, err = start(program); err != nil {
		fmt.Fprintln(os.Stderr, "starting service and providers:", err)
		return 1
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // tests wait more than they compute
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	stopChromium()
	if err := errors.Join(env.close(), dns.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "the service left goroutines behind:", err)
		code = 1
	}
	return code
}

func start(program string) (*environment, error) {
	dir, err := os.MkdirTemp("", "fairlead-login-")
	if err != nil {
		return nil, err
	}
	w := &environment{dir: dir, finished: make(chan error, 1)}
	if w.certs, err = issue(dir, "*."+domain, domain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	up := make(chan service.Addresses, 1)
	opt := service.Options{
		ListenOptions: service.ListenOptions{Addr: "127.0.0.1:0", BaseURL: "https://" + apiHost},
		DataOptions:   service.DataOptions{DataDir: filepath.Join(dir, "data"), EndpointGrace: 10 * time.Minute},
		ObservabilityOptions: service.ObservabilityOptions{MetricsAddr: "127.0.0.1:0", MetricsSeries: 2000,
			AccessLog: filepath.Join(dir, "access.log"), AccessLogSample: 1},
		DrainTimeout: 10 * time.Second,
		Public: service.PublicOptions{HTTPAddr: "127.0.0.1:0", HTTPSAddr: "127.0.0.1:0",
			TLSCerts: []string{w.certs.cert},
			TLSKeys:  []string{w.certs.key}},
		Logger:  slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnReady: func(a service.Addresses) { up <- a },
	}
	allowLoopback(&opt)
	go func() { w.finished <- service.Run(ctx, opt) }()
	select {
	case w.at = <-up:
	case err := <-w.finished:
		return nil, fmt.Errorf("the service: %w", err)
	case <-time.After(maxWait):
		return nil, errors.New("the service did not come up")
	}
	if w.store, err = store.Open(ctx, store.Options{DataDir: opt.DataDir}); err != nil {
		return nil, err
	}
	if w.idp, err = startProviders(program); err != nil {
		return nil, err
	}
	return w, w.idp.control("PUT", "/edge", map[string]string{"addr": w.at.HTTPS.String(), "ca": w.certs.pem}, nil)
}

// close stops service and providers, and checks the logs for secrets.
func (w *environment) close() error {
	err := w.idp.close()
	w.stop()
	select {
	case stopped := <-w.finished:
		err = errors.Join(err, stopped)
	case <-time.After(maxWait):
		err = errors.Join(err, errors.New("the service did not stop"))
	}
	return errors.Join(err, w.store.Close(), w.checkLogForSecrets(), os.RemoveAll(w.dir))
}

// checkLogForSecrets searches the service's logs for secrets.
func (w *environment) checkLogForSecrets() error {
	access, err := os.ReadFile(filepath.Join(w.dir, "access.log"))
	if err != nil {
		return err
	}
	if !bytes.Contains(access, []byte("/_fairlead/")) {
		return errors.New("the access log has no login, so it cannot be searched for secrets")
	}
	if found, total := findSecrets(w.log.String() + string(access)); len(found) > 0 {
		return fmt.Errorf("the service's logs hold %d of %d secrets: %q", len(found), total, found)
	}
	return nil
}

// timeoutContext returns a context that ends with the test, or after maxWait.
func timeoutContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	t.Cleanup(cancel)
	return ctx
}

// text reads a body to its end.
func text(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	must.Succeed(t, err)
	return string(b)
}

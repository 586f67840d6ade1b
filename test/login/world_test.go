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
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// patience is how long a test waits for what has to happen at once.
const patience = 2 * time.Minute

// domain is above every endpoint's host; all of them are the same site, which is what a hostile
// neighbour would wish for.
const domain = "edge.test"

// apiHost is where clients and administrators think the service is.
const apiHost = "api.fairlead.test:8443"

// providersProgram names the program of test/idp.
const providersProgram = "FAIRLEAD_IDP"

// world is the service and the identity providers that all tests share, each test with an account
// and hosts of its own; nil without providers.
var world *running

type running struct {
	dir   string
	at    service.Addresses
	log   syncBuffer // the service's
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
	names, err := startNames()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the name server:", err)
		return 1
	}
	net.DefaultResolver = names.resolver() // before anything else runs
	if world, err = start(program); err != nil {
		fmt.Fprintln(os.Stderr, "starting service and providers:", err)
		return 1
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // tests wait for others more than they compute
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	stopChromium()
	if err := errors.Join(world.end(), names.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "the service left goroutines behind:", err)
		code = 1
	}
	return code
}

func start(program string) (*running, error) {
	dir, err := os.MkdirTemp("", "fairlead-login-")
	if err != nil {
		return nil, err
	}
	w := &running{dir: dir, finished: make(chan error, 1)}
	if w.certs, err = issue(dir, "*."+domain, domain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	up := make(chan service.Addresses, 1)
	opt := service.Options{
		Addr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0", MetricsSeries: 2000, BaseURL: "https://" + apiHost,
		DataDir:   filepath.Join(dir, "data"),
		AccessLog: filepath.Join(dir, "access.log"), AccessLogSample: 1, DrainTimeout: 10 * time.Second,
		EndpointGrace: 10 * time.Minute,
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
	case <-time.After(patience):
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

// end stops everything and returns what was not orderly.
func (w *running) end() error {
	err := w.idp.end()
	w.stop()
	select {
	case stopped := <-w.finished:
		err = errors.Join(err, stopped)
	case <-time.After(patience):
		err = errors.Join(err, errors.New("the service did not stop"))
	}
	return errors.Join(err, w.store.Close(), w.checkLogForSecrets(), os.RemoveAll(w.dir))
}

// checkLogForSecrets searches the service's logs for secrets.
func (w *running) checkLogForSecrets() error {
	access, err := os.ReadFile(filepath.Join(w.dir, "access.log"))
	if err != nil {
		return err
	}
	if !bytes.Contains(access, []byte("/_fairlead/")) {
		return errors.New("the access log has no login: is it still where this looks for secrets?")
	}
	if found, looked := leaked(w.log.String() + string(access)); len(found) > 0 {
		return fmt.Errorf("the service's logs hold %d of %d secrets: %q", len(found), looked, found)
	}
	return nil
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// syncBuffer collects a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// text reads a body to its end.
func text(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

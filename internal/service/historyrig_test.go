// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// Times of the replicas of a history. As in production, a replica serves people for a second less
// than it takes the others to fence it.
const (
	historyLease = 5 * time.Second // the shortest that is allowed
	historyFence = 6 * time.Second
	historyBeat  = 500 * time.Millisecond
)

// historyReplica is one of the services of a history, behind relays that faults cut.
type historyReplica struct {
	h        *history
	host     string
	options  service.Options
	log      logbuffer.Buffer
	postgres []*relay                    // to the primary and to the standby
	step     atomic.Int64                // of the wall clock, nanoseconds
	now      atomic.Pointer[incarnation] // nil while none is ready
	database disturbance                 // of its way to the database, and of itself
	end      func()                      // ends the service and waits

	mu       sync.Mutex
	links    map[string]*relay // to the other replicas, by address
	linkMode relayMode
}

// incarnation is a service from when it is ready to its end.
type incarnation struct {
	r        *historyReplica
	addrs    service.Addresses
	api      *http.Client
	fencedAt atomic.Pointer[time.Time] // when it was found fenced, while it did not know
}

// disturbance tells when something was disturbed. It is safe for concurrent use.
type disturbance struct {
	mu     sync.Mutex
	active int
	ended  time.Time
}

func (d *disturbance) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active++
}

func (d *disturbance) over() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active--
	d.ended = time.Now()
}

// quietSince reports whether nothing was disturbed since the time.
func (d *disturbance) quietSince(at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active == 0 && d.ended.Before(at)
}

// newHistoryReplica returns a replica that is not running.
func (h *history) newHistoryReplica(i int) *historyReplica {
	h.t.Helper()
	host := fmt.Sprintf("127.0.0.%d", i+1)
	r := &historyReplica{h: h, host: host, links: map[string]*relay{}}
	var dirs []string
	for _, server := range []string{h.primaryDir, h.standbyDir} {
		one, dir := newPostgresRelay(h.t, server, h.loses)
		r.postgres, dirs = append(r.postgres, one), append(dirs, dir)
	}
	h.t.Cleanup(func() {
		for _, link := range r.links {
			link.close()
		}
	})
	r.options = service.Options{
		ListenOptions: service.ListenOptions{Addr: host + ":0", BaseURL: "https://127.0.0.1:8443"},
		DataOptions: service.DataOptions{DataDir: filepath.Join(h.t.TempDir(), "data"),
			DatabaseURL: withHosts(h.t, h.databaseURL, dirs...), SecretKeyFile: h.keyFile,
			EndpointGrace: 2 * time.Second},
		ObservabilityOptions: service.ObservabilityOptions{MetricsAddr: host + ":0", MetricsSeries: 2000,
			AccessLogSample: 1},
		LoginAllow: []string{"127.0.0.1"},
		Logger:     slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Replica:    service.ReplicaOptions{RelayAddress: host + ":0", Lease: historyLease},
		Public: service.PublicOptions{HTTPAddr: host + ":0", HTTPSAddr: host + ":0", MaxConnsPerClient: 10_000,
			TLSCerts: []string{filepath.Join(h.dir, "tls.crt")}, TLSKeys: []string{filepath.Join(h.dir, "tls.key")}},
		OnReady: r.ready,
	}
	r.options.SetBeatTimes(membership.BeatTimes{Interval: historyBeat, Timeout: 2 * time.Second,
		FenceAfter: historyFence})
	r.options.SetDialPeer(r)
	r.options.SetSessionSweepInterval(time.Second)
	started := time.Now()
	r.options.SetLeaseClock(lease.Clock{Boot: lease.Now, Now: func() (wall, monotonic time.Duration) {
		now := time.Now()
		return time.Duration(now.UnixNano() + r.step.Load()), now.Sub(started)
	}})
	return r
}

// withHosts returns the URL of a database with other directories of sockets.
func withHosts(t *testing.T, raw string, dirs ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	must.Succeed(t, err)
	query := u.Query()
	query.Set("host", strings.Join(dirs, ","))
	u.RawQuery = query.Encode()
	return u.String()
}

// start runs the service and begins anew when it ends, as a supervisor does, until end is called.
func (r *historyReplica) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.h.t.Context()))
	forceStop, done := make(chan struct{}), make(chan struct{})
	options := r.options
	options.ForceStop = forceStop
	go func() {
		defer close(done)
		for {
			err := service.Run(ctx, options)
			r.now.Store(nil)
			if ctx.Err() != nil {
				return
			}
			options.Logger.Error("the supervisor starts the service again", "err", err)
			timer.Sleep(ctx, 100*time.Millisecond)
		}
	}()
	r.end = sync.OnceFunc(func() {
		close(forceStop)
		cancel()
		<-done
	})
}

func (r *historyReplica) ready(a service.Addresses) {
	config, err := trust.Options{CASHA256: a.CAFingerprint}.ClientConfig()
	if err != nil {
		r.h.t.Error(err)
		return
	}
	config.NextProtos = []string{"http/1.1"}
	tr := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 8}
	r.h.t.Cleanup(tr.CloseIdleConnections)
	r.now.Store(&incarnation{r: r, addrs: a, api: &http.Client{Transport: tr}})
}

// waitReady waits until the service is ready, and returns it.
func (r *historyReplica) waitReady() *incarnation {
	r.h.t.Helper()
	wait.Until(r.h.t, "service to be ready", func() bool { return r.now.Load() != nil })
	return r.now.Load()
}

// DialContext connects to another replica, through a relay.
func (r *historyReplica) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	link := r.links[address]
	if link == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		link = newRelay(l, network, address, nil)
		link.set(r.linkMode, false)
		r.links[address] = link
	}
	r.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, link.listener.Addr().String())
}

// setPostgres changes the replica's way to the database.
func (r *historyReplica) setPostgres(mode relayMode, cut bool) {
	for _, p := range r.postgres {
		p.set(mode, cut)
	}
}

// setPeers changes the replica's links with the others, in both directions.
func (r *historyReplica) setPeers(mode relayMode, cut bool) {
	for _, other := range r.h.replicas {
		other.mu.Lock()
		if other == r {
			other.linkMode = mode
		}
		for address, link := range other.links {
			if other == r || strings.HasPrefix(address, r.host+":") {
				link.set(mode, cut)
			}
		}
		other.mu.Unlock()
	}
}

// kill ends the service without a word to the database and the other replicas.
func (r *historyReplica) kill() {
	r.database.begin()
	r.setPostgres(relayRefuses, true)
	r.setPeers(relayRefuses, true)
	r.now.Store(nil)
	r.end()
	r.now.Store(nil)
	r.setPostgres(relayPasses, false)
	r.setPeers(relayPasses, false)
}

// restart starts a service in the place of one that was killed, and waits until it is ready.
func (r *historyReplica) restart() {
	r.start()
	r.waitReady()
	r.database.over()
}

// rowID returns the id of the replica's latest row, "" when the others have fenced it.
func (r *historyReplica) rowID() string {
	rows, err := r.h.admin.Replicas(r.h.t.Context())
	if err != nil {
		return "unknown"
	}
	id := ""
	for _, row := range rows {
		if strings.HasPrefix(row.RelayAddress, r.host+":") {
			id = row.ID
		}
	}
	return id
}

// readSecrets reads the first API key and authtoken of the first service.
func (h *history) readSecrets() {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.replicas[0].options.DataDir, service.BootstrapFileName))
	must.Succeed(h.t, err)
	h.apiKey = regexp.MustCompile(`flk_[\w-]+`).FindString(string(b))
	h.authtoken = regexp.MustCompile(`flt_[\w-]+`).FindString(string(b))
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package acme

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mholt/acmez/v3"
	acmeclient "github.com/mholt/acmez/v3/acme"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

const (
	passInterval = 2 * time.Second // how soon a new endpoint is ordered for
	maxOrders    = 4               // at a time
	orderTimeout = 3 * time.Minute
)

// Store has what all replicas share, and chooses the one that orders; store.Store implements it.
type Store interface {
	ACMEHosts(ctx context.Context) ([]string, error)
	ACMEVersions(ctx context.Context, kind store.ACMEKind) (map[string]int64, error)
	ACMEValue(ctx context.Context, kind store.ACMEKind, name string) (string, error)
	PutACME(ctx context.Context, kind store.ACMEKind, name, value string) error
	// Sweeps reports whether this server orders; of several replicas one does.
	Sweeps() bool
}

// Files has the certificates that are given as files. They win for the hosts that they cover.
type Files interface{ HasFile(host string) bool }

// Options are what a Manager needs.
type Options struct {
	Directory string // URL
	Email     string // contact of the account; "" = none
	TLS       *tls.Config
	UserAgent string
	HTTP01    bool // there is a listener without TLS to answer challenges, too

	Store  Store
	Files  Files
	Logger *slog.Logger
}

// Manager has the certificates of hosts, and orders them. It is safe for concurrent use.
type Manager struct {
	opt    Options
	client acmez.Client

	current atomic.Pointer[snapshot]

	accountMu sync.Mutex         // accountMu is held while the account is registered.
	account   acmeclient.Account // account is zero until then.

	mu     sync.Mutex
	busy   map[string]bool      // busy has the hosts with an order, or a question, under way.
	advice map[string]ariAdvice // advice has when the directory wants certificates renewed, by host.
	orders sync.WaitGroup
}

// snapshot is what the store had last.
type snapshot struct {
	wanted []string // wanted are the hosts of endpoints, sorted.
	byHost map[string]*hostState
}

// hostState is a record that was read.
type hostState struct {
	record
	version int64
	cert    *tls.Certificate // cert is nil without one.
}

// record is what the store has of a host, as JSON.
type record struct {
	Directory  string    // Directory is where Chain was ordered.
	Chain, Key string    // Chain and Key are PEM; "" until there is a certificate.
	Failures   int       // Failures counts those since the last certificate.
	Retry      time.Time // Retry is when to order again after a failure.
	Problem    string    // Problem is the last failure with its remedy, a sentence; "" = none.
}

// New makes a Manager; Run makes it work.
func New(o Options) *Manager {
	m := &Manager{opt: o, busy: map[string]bool{}, advice: map[string]ariAdvice{}}
	m.client = m.newClient()
	m.current.Store(&snapshot{})
	return m
}

// Run reads what the store has, and orders, until ctx is done. While the store does not answer, what
// was read stays.
func (m *Manager) Run(ctx context.Context) {
	defer m.orders.Wait()
	failing := false
	for ok := true; ok; ok = timer.Sleep(ctx, passInterval) {
		err := m.read(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			m.opt.Logger.Error("certificates of the ACME directory could not be read from the store", "err", err)
		}
		if failing = err != nil; !failing && m.opt.Store.Sweeps() {
			m.startOrders(ctx, time.Now())
		}
	}
}

// read makes a new snapshot. What did not change is not read again.
func (m *Manager) read(ctx context.Context) (err error) {
	old, next := m.current.Load(), &snapshot{byHost: map[string]*hostState{}}
	if next.wanted, err = m.opt.Store.ACMEHosts(ctx); err != nil {
		return err
	}
	versions, err := m.opt.Store.ACMEVersions(ctx, store.ACMECertificate)
	if err != nil {
		return err
	}
	for host, version := range versions {
		if h := old.byHost[host]; h != nil && h.version == version {
			next.byHost[host] = h
			continue
		}
		h, err := m.readHost(ctx, host)
		if err != nil {
			return err
		}
		h.version = version
		next.byHost[host] = h
	}
	m.current.Store(next)
	return nil
}

// readHost reads the record of a host; a zero one when there is none, or it is damaged: then a
// certificate is ordered anew.
func (m *Manager) readHost(ctx context.Context, host string) (*hostState, error) {
	text, err := m.opt.Store.ACMEValue(ctx, store.ACMECertificate, host)
	h := &hostState{}
	if err != nil || text == "" {
		return h, err
	}
	err = json.Unmarshal([]byte(text), &h.record)
	if err == nil && h.Chain != "" {
		h.cert, err = parsePair(host, h.Chain, h.Key)
	}
	if err != nil {
		m.opt.Logger.Error("the certificate of a host cannot be read from the store", "host", host, "err", err)
		return &hostState{}, nil
	}
	return h, nil
}

// parsePair returns the certificate of a host with its key, both PEM.
func parsePair(host, chain, key string) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		return nil, err
	}
	return &pair, pair.Leaf.VerifyHostname(host)
}

// startOrders starts orders for the hosts that are due, and deletes what is over.
func (m *Manager) startOrders(ctx context.Context, now time.Time) {
	s := m.current.Load()
	for _, host := range s.wanted {
		h := s.byHost[host]
		if h == nil {
			h = &hostState{}
		}
		if m.opt.Files.HasFile(host) || now.Before(h.Retry) || !m.isDue(host, h, now) || !m.begin(host) {
			continue
		}
		m.orders.Go(func() {
			defer m.end(host)
			ctx, cancel := context.WithTimeout(ctx, orderTimeout)
			defer cancel()
			if err := m.renew(ctx, host); err != nil && ctx.Err() == nil {
				m.opt.Logger.Error("what came of an order could not be stored", "host", host, "err", err)
			}
		})
	}
	for host, h := range s.byHost {
		_, wanted := slices.BinarySearch(s.wanted, host)
		over := h.cert == nil && now.After(h.Retry) || h.cert != nil && now.After(h.cert.Leaf.NotAfter)
		if !wanted && over {
			if err := m.opt.Store.PutACME(ctx, store.ACMECertificate, host, ""); err != nil {
				m.opt.Logger.Debug("a certificate that is over could not be deleted", "host", host, "err", err)
			}
		}
	}
}

// begin marks the host as busy. It returns false if it is, or maxOrders are.
func (m *Manager) begin(host string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[host] || len(m.busy) >= maxOrders {
		return false
	}
	m.busy[host] = true
	return true
}

func (m *Manager) end(host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, host)
}

// Certificate returns the certificate of a host, nil when there is none.
func (m *Manager) Certificate(host string) *tls.Certificate {
	if h := m.current.Load().byHost[host]; h != nil {
		return h.cert
	}
	return nil
}

// Problem returns why the last order for a host failed, a sentence with the remedy; "" when it did
// not, or there was none.
func (m *Manager) Problem(host string) string {
	if h := m.current.Load().byHost[host]; h != nil {
		return h.Problem
	}
	return ""
}

// Life returns when the first certificate of a host with an endpoint expires, and the least share of
// its life that one of them has left, not above 0 when it has expired; the zero time and 1 without
// certificates.
func (m *Manager) Life(now time.Time) (first time.Time, least float64) {
	s := m.current.Load()
	least = 1
	for _, host := range s.wanted {
		h := s.byHost[host]
		if h == nil || h.cert == nil || m.opt.Files.HasFile(host) {
			continue
		}
		leaf := h.cert.Leaf
		least = min(least, leaf.NotAfter.Sub(now).Seconds()/leaf.NotAfter.Sub(leaf.NotBefore).Seconds())
		if first.IsZero() || leaf.NotAfter.Before(first) {
			first = leaf.NotAfter
		}
	}
	return first, least
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/service/ticketkeys"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// storeSweepInterval is how often the store's periodic cleanup runs.
const storeSweepInterval = time.Second

// data is what the service keeps in its database and data directory: the store, under the server's
// lock, the keys, and the certificate of its own listener.
type data struct {
	set        *settings
	log        *slog.Logger
	lock       *sqldb.ServerLock
	key        *seal.Key
	store      *store.Store
	certs      *pki.Source
	ticketKeys *ticketkeys.Keys
}

// open opens the store for a replica, or a server that is alone, and makes the first account.
func (d *data) open(ctx context.Context, r *replicas, m *storeMetrics) (err error) {
	set := d.set
	opt := store.Options{DataDir: set.DataDir, DatabaseURL: set.DatabaseURL, OwnHosts: set.ownHosts(),
		Retention: store.Retention{Grace: set.EndpointGrace, KeepUsers: set.IdentityRetention,
			KeepOperators: set.OperatorRetention},
		BeatTimes: set.beatTimes, Observer: m, Lease: r.lease, Clock: set.storeClock}
	if opt.Replica, err = r.row(); err != nil {
		return err
	}
	if d.lock, err = store.LockServer(ctx, opt); err != nil {
		return err
	}
	opt.Lock = d.lock
	if d.key, err = set.secretKey(); err != nil {
		return err
	}
	opt.Key = d.key
	r.authenticate(opt.Replica, d.key)
	if d.store, err = store.Open(ctx, opt); err != nil {
		return err
	}
	if set.onStoreOpen != nil {
		set.onStoreOpen(d.store)
	}
	if err := d.store.CheckKey(ctx); err != nil {
		return err
	}
	if err := d.store.BeginServerTerm(ctx); err != nil {
		return fmt.Errorf("starting on the store: %w", err)
	}
	if err := d.openCertificate(ctx); err != nil {
		return err
	}
	d.ticketKeys = ticketkeys.New(d.key)
	return bootstrap(ctx, d.store, &set.Options, bootstrapMessage{BaseURL: set.baseURL.String(),
		CAFingerprint: d.fingerprint(), DataDir: set.DataDir, Postgres: set.DatabaseURL != ""})
}

// openCertificate opens the certificate of the service's own listener. The authority lies where the
// store does, so that every server on a database has the same.
func (d *data) openCertificate(ctx context.Context) (err error) {
	o := pki.Options{Dir: d.set.DataDir, Names: d.set.certificateNames(), CertFile: d.set.TLSCert,
		KeyFile: d.set.TLSKey, Logger: d.log}
	if d.set.DatabaseURL != "" {
		o.Store = d.store
	}
	d.certs, err = pki.Open(ctx, o)
	return err
}

// run keeps the lock, the store and the certificate until serving is done.
func (d *data) run(serving context.Context, tasks *group) {
	tasks.run(serving, d.certs.Run, d.ticketKeys.Run, d.sweep, d.store.Listen)
	tasks.try(func() error { return d.lock.Maintain(serving, d.logLock) })
}

// logLock logs that the lock of the database is lost, or held again. While it is lost the store
// refuses writes.
func (d *data) logLock(held bool, why error) {
	if held {
		d.log.Info("the server's lock of the database is held again; writes go on")
		return
	}
	d.log.Error("the server's lock of the database is lost; writes are refused until it is held again", "err", why)
}

// sweep runs the store's periodic cleanup until ctx is done.
func (d *data) sweep(ctx context.Context) {
	failing := false
	for timer.Sleep(ctx, storeSweepInterval) {
		err := d.store.Sweep(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			d.log.Error("sweeping the store", "err", err)
		}
		failing = err != nil
	}
}

// ping returns an error with a safe message while the store does not answer.
func (d *data) ping(ctx context.Context) error {
	err := d.store.Ping(ctx)
	if err == nil {
		return nil
	}
	msg := "the store does not answer"
	if reason, ok := errors.AsType[*account.Error](err); ok {
		msg = reason.Msg
	}
	return fmt.Errorf("%s: %s", d.store.DisplayName(), msg)
}

// CheckClock returns an error while this machine's clock is too far from the database's, by which
// all replicas go. A server that is alone goes by its own.
func (d *data) CheckClock() error {
	offset := d.store.ClockOffset()
	if offset.Abs() <= membership.MaxClockOffset {
		return nil
	}
	return fmt.Errorf("this machine's clock is %s off the database's, and %s is the most it may be: set both by NTP",
		offset, membership.MaxClockOffset)
}

// fingerprint returns that of the service's own authority; "" with certificate files.
func (d *data) fingerprint() string {
	if ca := d.certs.CA(); ca != nil {
		return trust.Fingerprint(ca)
	}
	return ""
}

func (d *data) close() {
	if d.store != nil {
		if err := d.store.Close(); err != nil {
			d.log.Error("the store could not be closed", "err", err)
		}
	}
	if d.lock != nil {
		if err := d.lock.Release(); err != nil {
			d.log.Error("the server's lock could not be released", "err", err)
		}
	}
}

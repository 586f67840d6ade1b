// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	probeEvery = time.Second
	probeSize  = 16 << 10 // bytes, which need pages of their own
)

// probe is the outcome of the last write that a Ping made.
type probe struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// Ping checks that the store reads and writes: nil, or CodeUnavailable with the reason. It writes
// at most once in probeEvery. A write that has not ended when ctx does counts as none: the store is
// busy.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.opt.Lock.check(); err != nil {
		return err
	}
	var one int
	if err := s.reader.QueryRowContext(ctx, `SELECT 1 FROM store`).Scan(&one); err != nil {
		return s.mapError("asking the store", err)
	}
	p := &s.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.now()
	if since := now.Sub(p.at); since >= 0 && since < probeEvery {
		return p.err
	}
	err := s.write(ctx, "asking the store to write", func(t *tx) error {
		if err := t.exec(`INSERT INTO write_probes (data) VALUES ($1)`, make([]byte, probeSize)); err != nil {
			return err
		}
		return t.exec(`DELETE FROM write_probes`)
	})
	if ctx.Err() != nil {
		return nil
	}
	p.at, p.err = now, err
	return err
}

// DiskFull reports whether the error, of an operating system or a driver, means that there is no
// room left.
func DiskFull(err error) bool {
	var lite *sqlite.Error
	var postgres *pgconn.PgError
	switch {
	case errors.As(err, &lite):
		return lite.Code() == sqlite3.SQLITE_FULL || lite.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
	case errors.As(err, &postgres):
		return postgres.Code == "53100"
	}
	return errors.Is(err, syscall.ENOSPC)
}

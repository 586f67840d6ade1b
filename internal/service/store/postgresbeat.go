// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	// beat adds one to the replica's beats and returns those of all, as they were before, whether
	// it is the replica's own that was counted, and the database's process. The answer means that
	// the beat is committed. A row that is being deleted is still read, but not counted.
	beat = `WITH own AS (UPDATE replica_beats SET beats = beats + 1 WHERE replica_id = $1 RETURNING replica_id)
		SELECT b.replica_id, b.beats, own.replica_id IS NOT NULL, ` + databaseMicros + `, `
	sweeperLock = `SELECT pg_try_advisory_lock($1, hashtext('sweeper of ' || COALESCE(current_schema(), '')))`
)

// beater keeps one replica of a store alive on a connection of its own. The connection's lock makes
// one replica the sweeper of them all.
type beater struct {
	s        *Store
	config   *pgx.ConnConfig
	conn     *pgx.Conn // nil while it is lost
	observer beatObserver
	clock    func() time.Duration
	answered func(began time.Duration) // nil = not called
	last     time.Duration             // clock before the last beat that was counted
	counted  bool                      // a beat was counted
}

// databaseProcess is the expression of the database's process and the history that it writes.
func (e *postgresEngine) databaseProcess() string {
	return `CAST(pg_postmaster_start_time() AS TEXT) || ' ' || ` + e.timeline
}

// Beat keeps this replica alive until ctx is done, which is no error, and fences others that are
// dead. It returns ErrFenced when this one was. After each beat whose answer showed this replica
// alive it calls answered, if not nil, with the time of Options.BeatClock before the beat was sent.
func (s *Store) Beat(ctx context.Context, answered func(began time.Duration)) error {
	config, _, err := parseDatabaseURL(s.opt.DatabaseURL)
	if err != nil {
		return err
	}
	b := &beater{s: s, config: config, observer: beatObserver{after: s.opt.BeatTimes.FenceAfter}, answered: answered,
		clock: s.opt.BeatClock}
	if opened := time.Now(); b.clock == nil {
		b.clock = func() time.Duration { return time.Since(opened) }
	}
	defer b.disconnect()
	for first := true; first || timer.Sleep(ctx, s.opt.BeatTimes.Interval); first = false {
		dead, err := b.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrFenced):
			return err
		case err != nil:
			b.observer.broken()
		}
		for id, beats := range dead {
			b.fenceDead(ctx, id, beats)
		}
	}
	return nil
}

// beat beats once. An error without an answer of the database has ended the connection.
func (b *beater) beat(ctx context.Context) (dead map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.s.opt.BeatTimes.Timeout)
	defer cancel()
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	engine := b.s.engine.(*postgresEngine)
	began, sent := b.clock(), b.s.now()
	rows, err := b.conn.Query(ctx, beat+engine.databaseProcess()+
		` FROM replica_beats AS b LEFT JOIN own ON own.replica_id = b.replica_id`, b.s.opt.Replica.ID)
	if err != nil {
		b.disconnect()
		return nil, err
	}
	var id, database string
	var beats, micros int64
	alive, counted, others := false, false, map[string]int64{}
	_, err = pgx.ForEachRow(rows, []any{&id, &beats, &counted, &micros, &database}, func() error {
		if id == b.s.opt.Replica.ID {
			alive = counted
		} else {
			others[id] = beats
		}
		return nil
	})
	switch {
	case err != nil:
		b.disconnect()
		return nil, err
	case !alive:
		return nil, b.rejoin(ctx) // the next beat is counted
	}
	b.last, b.counted = began, true
	b.s.clockOffset.Store(int64(clockOffset(sent, b.s.now(), fromMicros(micros))))
	if b.answered != nil {
		b.answered(began)
	}
	return b.observer.answered(time.Now(), database, others), nil
}

func (b *beater) connect(ctx context.Context) error {
	if b.conn != nil {
		return b.becomeSweeper(ctx)
	}
	conn, err := pgx.ConnectConfig(ctx, b.config)
	if err != nil {
		return err
	}
	b.conn = conn
	return b.becomeSweeper(ctx)
}

// becomeSweeper asks for the sweeper's lock while this replica does not have it.
func (b *beater) becomeSweeper(ctx context.Context) error {
	if b.s.sweeper.Load() {
		return nil
	}
	var locked bool
	if err := b.conn.QueryRow(ctx, sweeperLock, advisoryKey).Scan(&locked); err != nil {
		b.disconnect()
		return err
	}
	b.s.sweeper.Store(locked)
	return nil
}

func (b *beater) disconnect() {
	b.s.sweeper.Store(false)
	if b.conn == nil {
		return
	}
	closePostgres(b.conn)
	b.conn = nil
}

// fenceDead fences a dead replica and ends its sessions. What fails is tried again at the next
// beat, or by the next sweep.
func (b *beater) fenceDead(ctx context.Context, id string, beats int64) {
	if fenced, err := b.s.fence(ctx, id, beats); err != nil || !fenced {
		return
	}
	_ = b.s.endLost(ctx, fmt.Sprintf("its server %s was lost", id))
}

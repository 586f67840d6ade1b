// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
)

// beat adds one to the replica's beats and returns those of all, as they were before, whether
// it is the replica's own that was counted, and the database's process. The answer means that
// the beat is committed. A row that is being deleted is still read, but not counted.
const beat = `WITH own AS (UPDATE replica_beats SET beats = beats + 1 WHERE replica_id = $1 RETURNING replica_id)
	SELECT b.replica_id, b.beats, own.replica_id IS NOT NULL, ` + sqldb.DatabaseMicros + `, `

const sweeperLock = `SELECT pg_try_advisory_lock($1, hashtext('sweeper of ' || COALESCE(current_schema(), '')))`

// beater keeps one replica of a store alive on a connection of its own. The connection's lock makes
// one replica the sweeper of them all.
type beater struct {
	m        *Members
	conn     *sqldb.Conn // conn is nil while it is lost.
	observer beatObserver
	last     time.Duration // clock before the last beat that was counted
	counted  bool          // a beat was counted
}

// Beat keeps this replica alive until ctx is done, which is no error, and fences others that are
// dead. It returns ErrFenced when this one was. After each beat whose answer showed this replica
// alive it calls answered, if not nil, with the time of Options.Lease before the beat was sent.
func (m *Members) Beat(ctx context.Context, answered func(began time.Duration)) error {
	b := &beater{m: m, observer: beatObserver{after: m.opt.Times.FenceAfter}}
	defer b.disconnect()
	for first := true; first || timer.Sleep(ctx, m.opt.Times.Interval); first = false {
		dead, err := b.beat(ctx, answered)
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
func (b *beater) beat(ctx context.Context, answered func(began time.Duration)) (dead map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.m.opt.Times.Timeout)
	defer cancel()
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	began, sent := b.m.opt.Lease.Now(), b.m.writer.Now()
	var id, database string
	var beats, micros int64
	alive, counted, others := false, false, map[string]int64{}
	err = b.conn.Each(ctx, func(from sqldb.Scanner) error {
		err := from.Scan(&id, &beats, &counted, &micros, &database)
		if id == b.m.opt.Replica.ID {
			alive = counted
		} else {
			others[id] = beats
		}
		return err
	}, beat+b.m.db.ProcessExpression()+
		` FROM replica_beats AS b LEFT JOIN own ON own.replica_id = b.replica_id`, b.m.opt.Replica.ID)
	switch {
	case err != nil:
		b.disconnect()
		return nil, err
	case !alive:
		return nil, b.rejoin(ctx) // the next beat is counted
	}
	b.last, b.counted = began, true
	b.m.clockOffset.Store(int64(clockOffset(sent, b.m.writer.Now(), sqldb.FromMicros(micros))))
	if answered != nil {
		answered(began)
	}
	return b.observer.answered(time.Now(), database, others), nil
}

func (b *beater) connect(ctx context.Context) error {
	if b.conn == nil {
		conn, err := b.m.db.Connect(ctx)
		if err != nil {
			return err
		}
		b.conn = conn
	}
	return b.becomeSweeper(ctx)
}

// becomeSweeper asks for the sweeper's lock while this replica does not have it.
func (b *beater) becomeSweeper(ctx context.Context) error {
	if b.m.sweeper.Load() {
		return nil
	}
	var locked bool
	err := b.conn.Each(ctx, func(from sqldb.Scanner) error { return from.Scan(&locked) }, sweeperLock,
		sqldb.AdvisoryKey)
	if err != nil {
		b.disconnect()
		return err
	}
	b.m.sweeper.Store(locked)
	return nil
}

func (b *beater) disconnect() {
	b.m.sweeper.Store(false)
	if b.conn == nil {
		return
	}
	b.conn.Close()
	b.conn = nil
}

// fenceDead fences a dead replica and ends its sessions. What fails is tried again at the next
// beat, or by the next sweep.
func (b *beater) fenceDead(ctx context.Context, id string, beats int64) {
	if fenced, err := b.m.fence(ctx, id, beats); err == nil && fenced {
		_ = b.m.sessions.EndLost(ctx, fmt.Sprintf("its server %s was lost", id))
	}
}

// rejoin adds the replica's row again, which a standby that was promoted may lack if the replica
// had just joined. The row was lost, and not deleted by another replica, if the database has
// another history than at the last beat that was counted, and less than fenceAfter has passed
// since: so long a beat must be missing before a replica is fenced. ErrFenced otherwise.
func (b *beater) rejoin(ctx context.Context) error {
	if !b.counted || b.m.opt.Lease.Now()-b.last >= b.m.opt.Times.FenceAfter {
		return ErrFenced
	}
	var database string
	err := b.conn.Each(ctx, func(from sqldb.Scanner) error { return from.Scan(&database) },
		`SELECT `+b.m.db.ProcessExpression())
	if err != nil {
		b.disconnect()
		return err
	}
	if database == b.observer.database {
		return ErrFenced
	}
	return b.m.rejoin(ctx)
}

// rejoin adds the replica's row. ErrFenced when the store has come to be used otherwise.
func (m *Members) rejoin(ctx context.Context) error {
	own := *m.opt.Replica
	own.Draining = m.draining.Load()
	err := m.writer.WriteUnlisted(ctx, func(t sqldb.Tx) error {
		var mode string
		var otherURLs int
		err := t.Row(`SELECT mode, (SELECT COUNT(*) FROM replicas WHERE base_url <> $1) FROM store`, own.BaseURL).
			Scan(&mode, &otherURLs)
		switch {
		case err != nil:
			return err
		case mode != modeReplicas || otherURLs > 0:
			return ErrFenced
		}
		return m.join(t, &own)
	})
	if errors.Is(err, ErrFenced) {
		return ErrFenced
	}
	return m.db.MapError("joining the other servers again", err)
}

// beatObserver decides which other replicas are dead: those whose number of beats has not changed
// for a time in which each beat of the observer was answered, by the same database. It compares no
// clocks of machines, and an outage of the database kills no replica when it ends. It is not safe
// for concurrent use.
type beatObserver struct {
	after    time.Duration
	database string    // database that answered the last beat
	since    time.Time // first of the beats answered without a break; zero = there is none
	seen     map[string]observedBeats
}

// observedBeats is a replica's number of beats and when it was first seen.
type observedBeats struct {
	beats int64
	since time.Time
}

// broken records that a beat was not answered in time.
func (o *beatObserver) broken() { o.since, o.seen = time.Time{}, nil }

// answered records the answer to a beat, which has the beats of the other replicas, and returns
// those that are dead. Times are monotonic.
func (o *beatObserver) answered(now time.Time, database string, others map[string]int64) (dead map[string]int64) {
	if database != o.database {
		o.broken()
	}
	if o.since.IsZero() {
		o.since = now
	}
	o.database = database
	seen := map[string]observedBeats{}
	for id, beats := range others {
		before, known := o.seen[id]
		if !known || before.beats != beats {
			before = observedBeats{beats: beats, since: now}
		}
		seen[id] = before
		if now.Sub(before.since) >= o.after && now.Sub(o.since) >= o.after {
			if dead == nil {
				dead = map[string]int64{}
			}
			dead[id] = beats
		}
	}
	o.seen = seen
	return dead
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// What a replica checks when it joins the others.

// MaxClockOffset is how far the clock of a replica may be from the database's when it joins.
const MaxClockOffset = time.Second

// checkClock refuses a clock that is too far from the database's: replicas compare times that
// others wrote with their own.
func (t *tx) checkClock() error {
	var micros int64
	before := t.s.now()
	err := t.row(`SELECT ` + databaseMicros).Scan(&micros)
	if err != nil {
		return err
	}
	offset, direction := clockOffset(before, t.s.now(), fromMicros(micros)), "ahead of"
	if offset < 0 {
		offset, direction = -offset, "behind"
	}
	if offset <= MaxClockOffset {
		return nil
	}
	return account.Errorf(account.CodeUnavailable,
		"this machine's clock is %s %s the database's, and replicas need clocks within %s of it: set both by NTP, "+
			"then start the server again", offset.Round(time.Millisecond), direction, MaxClockOffset)
}

// databaseMicros is the database's time in microseconds.
const databaseMicros = `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`

// clockOffset returns how far this machine's clock is ahead of the database's, negative when it is
// behind, by a question that was asked and answered at these times of the machine. It is the least
// that they prove.
func clockOffset(asked, answered, database time.Time) time.Duration {
	switch {
	case asked.After(database):
		return asked.Sub(database)
	case answered.Before(database):
		return answered.Sub(database)
	}
	return 0
}

// ClockOffset returns how far a replica's clock was ahead of the database's at its last beat, negative
// when it was behind.
func (s *Store) ClockOffset() time.Duration { return time.Duration(s.clockOffset.Load()) }

// markPredecessors records of earlier processes at the relay address of this one, which listens
// there, that they do not, if they have no connection with the database any more: they are dead.
// Only IP addresses prove it: several machines may share a name. Their sessions are left to the
// beats, as the agents may have joined other replicas.
func (t *tx) markPredecessors(relayAddress string) error {
	if _, err := netip.ParseAddrPort(relayAddress); err != nil {
		return nil //nolint:nilerr // a name, or none
	}
	return t.exec(`UPDATE replicas SET relay_address = '' WHERE relay_address = $1
		AND pg_try_advisory_xact_lock($2, hashtext('replica ' || id))`, relayAddress, advisoryKey)
}

// otherReplicas counts the locks of replicas that another connection than $2 holds: a replica has
// one as long as it lives.
const otherReplicas = `SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND CAST(classid AS BIGINT) = $1
	AND CAST(objid AS BIGINT) = CAST(hashtext('server of ' || COALESCE(current_schema(), '')) AS BIGINT) & 4294967295
	AND pid <> $2`

// checkBaseURL refuses another base URL than that of the live replicas: clients reach all by one.
// Rows of replicas that died are removed when none is left.
func (t *tx) checkBaseURL(baseURL string) error {
	var id, theirs string
	differs := false
	err := t.each(func(from scanner) error {
		differs = true
		return from.Scan(&id, &theirs)
	}, `SELECT id, base_url FROM replicas WHERE base_url <> $1 ORDER BY started_at, id LIMIT 1`, baseURL)
	if err != nil || !differs {
		return err
	}
	var live int
	if err := t.row(otherReplicas, advisoryKey, t.s.opt.Lock.postgres.pid.Load()).Scan(&live); err != nil {
		return err
	}
	if live > 0 {
		return account.Invalid("--base-url", baseURL, fmt.Sprintf("is not %q, that of the live server %s; give all "+
			"servers of the database the same, or stop the others first (one that was cut off counts for half a "+
			"minute)",
			theirs, id))
	}
	return t.exec(`DELETE FROM replicas`)
}

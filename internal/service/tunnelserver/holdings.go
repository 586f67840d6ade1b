// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// With several servers, a session binds and unbinds over any leg. So a server reads what its
// sessions have bound from the store: when a leg comes up, when another server publishes a change,
// and in comparisons. Two rules keep an older reading from undoing a newer change:
//
//   - A reading and its application exclude the binds and unbinds of the session on this server
//     (session.holdings). So what is applied was read after the last of them, and every change on
//     another server is followed by a reading that begins after its commit.
//   - Of two sessions that have bound one endpoint, the one with the higher resource version has it:
//     the other's row was read, or its bind answered, before the takeover.

// holdingsSync makes what sessions hold here, and their legs in the store, agree with what other
// servers and the database have.
type holdingsSync struct {
	registry *registry
	ender    *ender
	legs     account.SessionLegs // nil for a server that is alone, where nothing is to be done
	log      *slog.Logger

	correcting  sync.Mutex     // held by correctLegs
	differences legDifferences // result of the last comparison; guarded by correcting
}

// ApplySessions replaces the members of the change's sessions by those in the store, and ends the
// sessions that are over with its code and message. Without a code they are closed without a STOP;
// without either they are left to the next comparison, as the server that ended them publishes the
// reason. Sessions without a connection here are skipped. If they cannot be compared although the
// store answers another server, they are closed here, and go on with the others.
func (s *holdingsSync) ApplySessions(ctx context.Context, c peers.Change) error {
	var errs []error
	for _, id := range c.IDs {
		if t := s.registry.storedSession(id); t != nil {
			errs = append(errs, s.applySession(ctx, t, c.Code, c.Message))
		}
	}
	err := errors.Join(errs...)
	if err == nil || !c.StoreAnswers {
		return err
	}
	for _, id := range c.IDs {
		if t := s.registry.storedSession(id); t != nil {
			s.log.Info("session closed: it has changed, and the store does not answer", "session", id)
			s.ender.closeReplaced(t, account.SessionEnd{})
		}
	}
	return nil
}

// refresh reads what the session holds. It does nothing without other servers. After an
// error, the next comparison does it.
func (s *holdingsSync) refresh(ctx context.Context, t *session) {
	if s.legs == nil {
		return
	}
	if err := s.applySession(ctx, t, "", ""); err != nil {
		s.log.Warn("the endpoints of a session could not be read; it is tried again", "session", t.id, "err", err)
	}
}

func (s *holdingsSync) applySession(ctx context.Context, t *session, code tunnel.Code, msg string) error {
	t.holdings.Lock()
	defer t.holdings.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := s.legs.SessionHoldings(ctx, t.accountID, t.id)
	if account.CodeOf(err) == account.CodeNotFound {
		s.endOver(t, code, msg)
		return nil
	}
	if err != nil {
		return err
	}
	now, lost := s.registry.applyHoldings(t, held)
	if now == nil {
		return nil
	}
	problem := now.problem()
	switch {
	case problem != nil:
		s.log.Info("session ended: its authtoken's rules do not admit what it has bound", "session", t.id,
			"credential", t.credentialID)
		_ = s.ender.evictForbidden(t, problem)
	case lost:
		s.log.Warn("session ended: the database has lost what it has bound", "session", t.id, "account", t.accountID)
		s.ender.evict(t, tunnel.CodeUnavailable, "the database has lost what the session has bound: begin a new one",
			account.SessionEnd{})
	}
	return nil
}

// endOver ends a session that is over in the store.
func (s *holdingsSync) endOver(t *session, code tunnel.Code, msg string) {
	switch {
	case code == "" && msg == "" || !s.registry.setOver(t):
	case code == "":
		s.ender.closeReplaced(t, account.SessionEnd{Reason: msg})
	default:
		s.log.Info("session ended: it is over in the store", "session", t.id, "code", code)
		s.ender.evict(t, code, msg, account.SessionEnd{})
	}
}

// compareHoldings reads what those sessions hold whose version in the store is not that of their
// members here, and ends those that are over. It costs one query for 500 sessions. After a failover
// of the database it reads what each holds: the database may give out a version's number twice.
func (s *holdingsSync) compareHoldings(ctx context.Context) error {
	if s.legs == nil {
		return nil
	}
	failedOver, err := s.correctLegs(ctx)
	if err != nil {
		return err
	}
	have := s.registry.holdingsVersions()
	if len(have) == 0 {
		return nil
	}
	read, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	stored, err := s.legs.HoldingsVersions(read, slices.Sorted(maps.Keys(have)))
	if err != nil {
		return err
	}
	var differ []string
	for id, version := range have {
		if now, live := stored[id]; !live || now != version || failedOver {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	return s.ApplySessions(ctx, peers.Change{IDs: differ, Code: tunnel.CodeUnavailable,
		Message: "the session has ended"})
}

// The database may have lost the latest writes, if a standby that does not replicate synchronously
// was promoted. Then a session that lives here may have no leg in the store, and the store may have
// legs of sessions that left or ended, whose endpoints would stay online and taken. An answer that
// was lost leaves such a leg behind, too. An agent whose binds the store lacks is told to begin a
// new session, and binds them again.

// correctLegs makes the store's legs of this server agree with its sessions. A difference is
// corrected when a second comparison finds it again, as legs come and go; after a failover missing
// legs are added at once, before another server ends the session for lack of a leg. failedOver
// reports whether the database has another history than at the comparison before.
func (s *holdingsSync) correctLegs(ctx context.Context) (failedOver bool, err error) {
	s.correcting.Lock()
	defer s.correcting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	own, err := s.legs.OwnLegs(ctx)
	if err != nil {
		return false, err
	}
	now, failedOver := s.registry.compareLegs(own)
	if failedOver {
		s.log.Warn("the database has failed over: what it lacks of the sessions here is written again")
	}
	var add, remove []string
	for id, missing := range now {
		was, known := s.differences[id]
		again := known && was == missing
		switch {
		case missing && (failedOver || again):
			add = append(add, id)
		case !missing && again && !failedOver:
			remove = append(remove, id)
		default:
			continue
		}
		delete(now, id)
	}
	s.differences = now
	if len(add)+len(remove) == 0 {
		return failedOver, nil
	}
	return failedOver, s.writeLegs(ctx, add, remove)
}

// writeLegs adds and removes legs of this server, except of sessions that have joined meanwhile.
func (s *holdingsSync) writeLegs(ctx context.Context, add, remove []string) error {
	s.registry.joins.Lock()
	defer s.registry.joins.Unlock()
	gone := make([]string, 0, len(remove))
	for _, id := range remove {
		if s.registry.session(id) == nil {
			gone = append(gone, id)
		}
	}
	s.log.Warn("the store's connections of sessions were not those that this server has", "missing", len(add),
		"stray", len(gone))
	return s.legs.CorrectLegs(ctx, add, gone)
}

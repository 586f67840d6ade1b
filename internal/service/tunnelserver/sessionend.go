// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// ender ends sessions, and records in the store which have ended, or left this server.
type ender struct {
	registry  *registry
	publisher *publisher
	store     sessionStore
	legs      account.SessionLegs // nil for a server that is alone
	tasks     *sync.WaitGroup     // sessions that are being closed
	log       *slog.Logger
}

// sessionStore has the rows of sessions.
type sessionStore interface {
	EndSession(ctx context.Context, accountID, sessionID string, end account.SessionEnd) error
	TunnelSession(ctx context.Context, accountID, id string) (*account.TunnelSession, error)
}

// Down removes a session: its endpoints are offline.
func (e *ender) Down(ts *tunnel.Session, cause error) {
	t := e.registry.remove(ts.ID())
	if t == nil {
		return
	}
	e.log.Info("session down", "session", t.id, "role", t.hello.Role, "account", t.accountID, "cause", cause)
	if t.hello.Role != tunnel.RoleAgent {
		return
	}
	if err := e.recordSessionEnd(context.Background(), t); err != nil {
		e.log.Error("the endpoints of a lost session could not be marked offline; it is tried again", "session", t.id,
			"err", err)
		e.registry.addUnrecorded(t)
	}
}

// recordSessionEnd records that the session has ended, or that it has left this server.
func (e *ender) recordSessionEnd(ctx context.Context, t *session) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	end, recorded := e.registry.endOf(t)
	switch {
	case recorded:
		return nil
	case e.legs == nil:
		return e.store.EndSession(ctx, t.accountID, t.id, end.SessionEnd)
	case end.Reason == "": // it may go on with other servers
		return e.legs.LeaveSession(ctx, t.accountID, t.id, end.SessionEnd)
	}
	if err := e.store.EndSession(ctx, t.accountID, t.id, end.SessionEnd); err != nil {
		return err
	}
	e.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		e.publisher.publish(ctx, t.accountID, end.code, end.msg, t.id)
	})
	return nil
}

// retrySessionEnds records the ends that Down could not record: until then, the URLs of those
// sessions are taken. A session that has joined again meanwhile is left.
func (e *ender) retrySessionEnds(ctx context.Context) {
	lost := e.registry.takeUnrecorded()
	for i, t := range lost {
		if e.retrySessionEnd(ctx, t) != nil {
			e.registry.addUnrecorded(lost[i:]...)
			return
		}
	}
}

// retrySessionEnd records the end of a session that left, unless it has joined again meanwhile.
func (e *ender) retrySessionEnd(ctx context.Context, t *session) error {
	if e.legs != nil {
		e.registry.joins.Lock()
		defer e.registry.joins.Unlock()
		if now := e.registry.session(t.id); now != nil && now != t {
			return nil
		}
	}
	return e.recordSessionEnd(ctx, t)
}

// evict sends a session the reason of its end, and closes it after evictGrace. end is recorded; its
// Reason is msg unless it has one.
func (e *ender) evict(t *session, code tunnel.Code, msg string, end account.SessionEnd) {
	end.Reason = cmp.Or(end.Reason, msg)
	e.registry.setEnd(t, sessionEnd{end, code, msg})
	e.stop(t.tun, code, msg)
	e.tasks.Go(func() {
		waitFor(t.tun.Done(), evictGrace)
		_ = t.tun.Close()
	})
}

// evictForbidden evicts a session that its authtoken does not admit, and returns the refusal.
func (e *ender) evictForbidden(t *session, problem *account.Error) error {
	e.evict(t, tunnel.CodeForbidden, problem.Msg, account.SessionEnd{CausedByID: t.credentialID})
	return refusal(e.log, problem)
}

// stop tells a session to end.
func (e *ender) stop(ts *tunnel.Session, code tunnel.Code, msg string) {
	e.registry.setStopping(ts.ID())
	ts.Stop(code, msg)
}

// closeReplaced closes a session without a STOP: its agent has connected again. Nothing chooses it
// from now on.
func (e *ender) closeReplaced(t *session, end account.SessionEnd) {
	e.registry.setEnd(t, sessionEnd{SessionEnd: end, msg: end.Reason})
	e.registry.members.removeAll(t)
	e.tasks.Go(func() { _ = t.tun.Close() })
}

// endTakenOver ends the session of this id, which may be "", because its agent connected again as
// t: without a STOP, for it is an earlier session of the same process. The other servers close it
// when they are told.
func (e *ender) endTakenOver(ctx context.Context, id string, t *session) {
	if id == "" || id == t.id {
		return
	}
	end := account.SessionEnd{Reason: takenOver + t.id, PrincipalID: t.credentialID}
	if from := e.registry.sessionUp(id); from != nil {
		e.closeReplaced(from, end)
	}
	if e.legs == nil {
		return
	}
	if err := e.store.EndSession(ctx, t.accountID, id, end); err != nil {
		e.log.Warn("the end of a replaced session could not be recorded", "session", id, "err", err)
	}
}

// takenOver begins the reason of a session whose agent connected again.
const takenOver = "its agent connected again, as "

var _ account.SessionEnder = (*ender)(nil)

// StopSession implements account.SessionEnder. With several servers, the session may have
// connections with any of them.
func (e *ender) StopSession(ctx context.Context, by account.Caller, id string) error {
	return e.endByCaller(ctx, by, id, tunnel.CodeStop, "stopped through the API")
}

// RestartSession implements account.SessionEnder, as StopSession does.
func (e *ender) RestartSession(ctx context.Context, by account.Caller, id string) error {
	return e.endByCaller(ctx, by, id, tunnel.CodeUnavailable, "restarted through the API")
}

func (e *ender) endByCaller(ctx context.Context, by account.Caller, id string, code tunnel.Code, how string) error {
	t := e.registry.liveAgent(by.AccountID, id)
	if t == nil {
		if err := e.hasSession(ctx, by.AccountID, id); err != nil {
			return err
		}
	}
	e.log.Info("session ended over the API", "session", id, "account", by.AccountID, "by", by.PrincipalID, "code", code)
	end, msg := account.SessionEnd{Reason: how, PrincipalID: by.PrincipalID}, "the session was "+how
	if t != nil {
		e.evict(t, code, msg, end)
	}
	if e.legs == nil {
		return nil
	}
	if err := e.store.EndSession(ctx, by.AccountID, id, end); err != nil {
		return err
	}
	if t != nil {
		e.registry.setRecorded(t)
	}
	e.publisher.publish(ctx, by.AccountID, code, msg, id)
	return nil
}

// hasSession returns CodeNotFound unless the account has a live session of this id, with any server.
func (e *ender) hasSession(ctx context.Context, accountID, id string) error {
	unknown := account.Errorf(account.CodeNotFound, "there is no tunnel session %q in this account",
		account.Shorten(id))
	if e.legs == nil {
		return unknown
	}
	_, err := e.store.TunnelSession(ctx, accountID, id)
	if account.CodeOf(err) == account.CodeNotFound {
		return unknown
	}
	return err
}

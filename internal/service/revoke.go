// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/live"
)

const (
	// sessionSweepInterval is how often what is served for people's sessions is compared with the
	// store: how late a session's time-out cuts.
	sessionSweepInterval = 2 * time.Second
	sessionSweepTimeout  = 10 * time.Second // of the store's answer
	auditTimeout         = 5 * time.Second
)

// revoker ends sessions of people: first what is stored, then what is being served. It is an
// account.Revoker.
type revoker struct {
	store        account.Revoker
	liveSessions *live.Registry
	meter        *sessionMetrics
	log          *slog.Logger
	recordAudit  func(ctx context.Context, by account.Caller, what account.AuditType, objectID string,
		details map[string]string) error
}

// Revoke implements account.Revoker. When it returns without an error, nothing of the sessions is
// served any more. It completes the revocation even if ctx ends: clients that asked for it may be
// gone before the answer.
func (v *revoker) Revoke(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	ctx = context.WithoutCancel(ctx)
	began := time.Now()
	done, err := v.store.Revoke(ctx, by, sel, reason)
	if err != nil {
		return nil, err // if it was committed all the same, the sweep finds it
	}
	done.Streams = v.liveSessions.Abort(done.SessionIDs)
	cut := time.Now()
	if len(done.UserIDs) == 0 && len(done.SessionIDs) == 0 {
		return done, nil
	}
	v.meter.countRevoked(reason, len(done.SessionIDs), done.Streams, cut.Sub(began))
	v.log.Info("sessions revoked", "account", by.AccountID, "by", by.PrincipalID, "reason", reason,
		"users", done.UserIDs, "sessions", len(done.SessionIDs), "streams", done.Streams, "took", cut.Sub(began))
	if done.Streams > 0 {
		v.auditCut(ctx, by, sel, reason, done, cut)
	}
	return done, nil
}

// auditCut writes an audit event of the requests that were cut, beside that of the revocation
// itself. No byte of them was sent after cut.
func (v *revoker) auditCut(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string, done *account.Revocation,
	cut time.Time,
) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	details := map[string]string{
		"reason": reason, "sessions": strconv.Itoa(len(done.SessionIDs)), "streams": strconv.Itoa(done.Streams),
		"last_byte_before": cut.UTC().Format(time.RFC3339Nano),
	}
	object := cmp.Or(sel.UserID, sel.SessionsOf, sel.SessionID, done.SessionIDs[0])
	if err := v.recordAudit(ctx, by, account.AuditAppSessionCut, object, details); err != nil {
		v.log.Error("what was cut could not be written to the audit log", "object", object, "streams", done.Streams,
			"last_byte_before", cut.UTC(), "err", err)
	}
}

// sweepSessions cuts the requests of sessions that are over: expired, or revoked by another
// process.
func (s *service) sweepSessions(ctx context.Context) {
	failing := false
	for timer.Sleep(ctx, cmp.Or(s.opt.sessionSweepInterval, sessionSweepInterval)) {
		ids := s.liveSessions.Sessions()
		if len(ids) == 0 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, sessionSweepTimeout)
		alive, err := s.loginStore.LiveSessionIDs(asking, ids)
		cancel()
		if err != nil {
			if !failing && ctx.Err() == nil {
				s.log.Error("people's sessions cannot be compared with the store; what is open stays open, "+
					"new requests are refused", "err", err)
			}
			failing = true
			continue
		}
		failing = false
		over := ids[:0]
		for _, id := range ids {
			if !alive[id] {
				over = append(over, id)
			}
		}
		if streams := s.liveSessions.Abort(over); streams > 0 {
			s.meter.sessions.countExpired(len(over), streams)
			s.log.Info("requests were cut: their sessions are over", "sessions", over, "streams", streams)
		}
	}
}

// wireLogins constructs the store of login actions and the revoker of sessions.
func (s *service) wireLogins() {
	s.liveSessions = live.New()
	s.meter.sessions.addGauges(s.meter.registry, s.liveSessions)
	s.loginStore = &meteredLogins{s.store, s.meter.sessions}
	if f := s.opt.wrapLoginStore; f != nil {
		s.loginStore = f(s.loginStore)
	}
	s.revoker = &revoker{store: s.store, liveSessions: s.liveSessions, meter: s.meter.sessions, log: s.log,
		recordAudit: s.store.RecordAudit}
	if f := s.opt.wrapRevoker; f != nil {
		s.revoker = f(s.revoker)
	}
}

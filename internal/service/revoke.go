// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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
	sessionSweepTimeout  = 5 * time.Second // limit for the store's answer
	auditTimeout         = 5 * time.Second
)

// revoker ends sessions of people: first what is stored, then what is being served, here and by the
// other replicas. It is an account.Revoker.
type revoker struct {
	store        account.Revoker
	liveSessions *live.Registry
	meter        *sessionMetrics
	log          *slog.Logger
	recordAudit  func(ctx context.Context, by account.Caller, what account.AuditType, objectID string,
		details map[string]string) error
	// publish tells the other replicas that the sessions are over. It returns when none of them
	// serves them any more. nil = there are none.
	publish func(ctx context.Context, accountID string, sessionIDs []string) error
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
	err = v.publishEnd(ctx, by.AccountID, done.SessionIDs)
	if len(done.UserIDs) == 0 && len(done.SessionIDs) == 0 {
		return done, nil
	}
	took := time.Since(began)
	v.meter.countRevoked(reason, len(done.SessionIDs), done.Streams, took)
	v.log.Info("sessions revoked", "account", by.AccountID, "by", by.PrincipalID, "reason", reason,
		"users", done.UserIDs, "sessions", len(done.SessionIDs), "streams", done.Streams, "took", took)
	if done.Streams > 0 {
		v.auditCut(ctx, by, sel, reason, done, cut)
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// publishEnd tells the other replicas of sessions that are over.
func (v *revoker) publishEnd(ctx context.Context, accountID string, sessionIDs []string) error {
	if v.publish == nil || len(sessionIDs) == 0 {
		return nil
	}
	err := v.publish(ctx, accountID, sessionIDs)
	if err == nil {
		return nil
	}
	v.log.Error("other servers were not told that sessions are over; they find it in the store", "account", accountID,
		"sessions", len(sessionIDs), "err", err)
	return &account.Error{Code: account.CodeUnavailable, Cause: err,
		Msg: "the sessions are revoked, but another server may still serve what they have open, for some seconds"}
}

// ApplyPeople aborts what is being served here for sessions that another replica has ended, and
// returns the number of requests.
func (v *revoker) ApplyPeople(_ context.Context, sessionIDs []string) (streams int) {
	streams = v.liveSessions.Abort(sessionIDs)
	if streams > 0 {
		v.meter.countCut(peerReason, streams)
		v.log.Info("requests were cut: another server ended their sessions", "sessions", len(sessionIDs), "streams",
			streams, "last_byte_before", time.Now().UTC())
	}
	return streams
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
// process. Each complete comparison renews the lease. One that finds nothing being served is
// complete without the store: a request that begins later reads its session itself.
func (s *service) sweepSessions(ctx context.Context) {
	failing := false
	interval := cmp.Or(s.opt.sessionSweepInterval, sessionSweepInterval)
	for first := true; first || timer.Sleep(ctx, interval); first = false {
		began := s.lease.Now() // before what is being served is listed
		err := s.compareSessions(ctx)
		switch {
		case err == nil:
			s.lease.Compared(began)
		case !failing && ctx.Err() == nil && s.lease == nil:
			s.log.Error("people's sessions cannot be compared with the store; what is open stays open, "+
				"new requests are refused", "err", err)
		case !failing && ctx.Err() == nil:
			s.log.Error("people's sessions cannot be compared with the store; what is open ends with the lease, "+
				"new requests are refused", "err", err)
		}
		failing = err != nil
	}
}

// compareSessions compares the sessions that are being served with the store, once.
func (s *service) compareSessions(ctx context.Context) error {
	ids := s.liveSessions.Sessions()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sessionSweepTimeout)
	defer cancel()
	alive, err := s.loginStore.LiveSessionIDs(ctx, ids)
	if err != nil {
		return err
	}
	over := slices.DeleteFunc(ids, func(id string) bool { return alive[id] })
	if streams := s.liveSessions.Abort(over); streams > 0 {
		s.meter.sessions.countExpired(len(over), streams)
		s.log.Info("requests were cut: their sessions are over", "sessions", over, "streams", streams)
	}
	return nil
}

// countLeaseEnded counts requests that ended because the lease did.
func (s *service) countLeaseEnded(requests int, first bool) {
	s.meter.sessions.countCut(leaseReason, requests)
	if first {
		s.log.Error("people are not served: the store has not answered this server for longer than the lease; "+
			"what they had open was ended", "requests", requests)
	}
}

// wireLogins constructs the store of login actions and the revoker of sessions.
func (s *service) wireLogins() {
	s.liveSessions = live.New(s.lease)
	s.meter.sessions.addGauges(s.meter.registry, s.liveSessions)
	s.loginStore = &meteredLogins{s.store, s.meter.sessions}
	if f := s.opt.wrapLoginStore; f != nil {
		s.loginStore = f(s.loginStore)
	}
	s.localRevoker = &revoker{store: s.store, liveSessions: s.liveSessions, meter: s.meter.sessions, log: s.log,
		recordAudit: s.store.RecordAudit}
	if s.replica != nil {
		s.localRevoker.publish = s.publishPeople
	}
	s.revoker = s.localRevoker
	if f := s.opt.wrapRevoker; f != nil {
		s.revoker = f(s.revoker)
	}
}

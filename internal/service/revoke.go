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
	"github.com/fairlead-dev/fairlead/internal/service/live"
)

// auditTimeout bounds the writing of an audit event.
const auditTimeout = 5 * time.Second

// revoker ends sessions of people: first what is stored, then what is being served, here and by the
// other replicas. It is an account.Revoker.
type revoker struct {
	store        revokingStore
	peers        peopleListener // nil = there are none
	liveSessions *live.Registry
	meter        *sessionMetrics
	log          *slog.Logger
}

// revokingStore is the part of the store that a revoker uses.
type revokingStore interface {
	account.Revoker
	RecordAudit(ctx context.Context, by account.Caller, what account.AuditType, objectID string,
		details map[string]string) error
}

// peopleListener are the other replicas.
type peopleListener interface {
	// publishPeople tells them that sessions are over. It returns when none of them serves the
	// sessions any more.
	publishPeople(ctx context.Context, accountID string, sessionIDs []string) error
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
	if v.peers == nil || len(sessionIDs) == 0 {
		return nil
	}
	err := v.peers.publishPeople(ctx, accountID, sessionIDs)
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
	if err := v.store.RecordAudit(ctx, by, account.AuditAppSessionCut, object, details); err != nil {
		v.log.Error("what was cut could not be written to the audit log", "object", object, "streams", done.Streams,
			"last_byte_before", cut.UTC(), "err", err)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/tunnelserver"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	sealRefusalInterval = time.Hour // between two events of one cluster about one URL
	maxSealRefusals     = 10_000    // in an interval, in all accounts; further ones have no event
	sealRefusalTimeout  = 2 * time.Second
)

// sealRefusals writes to the audit logs of accounts that clusters refused agents of sealed endpoints.
// It is safe for concurrent use.
type sealRefusals struct {
	store interface {
		RecordAudit(ctx context.Context, by account.Caller, t account.AuditType, objectID string,
			details map[string]string) error
	}
	log *slog.Logger

	mu       sync.Mutex
	recorded map[sealRefusal]time.Time // time of the last event
}

// sealRefusal is what is recorded once in an interval.
type sealRefusal struct{ accountID, operatorID, credentialID, url string }

// report records that the forwarder of a stream that has ended refused the agent, if it did.
func (r *sealRefusals) report(ctx context.Context, in tunnelserver.Incoming) {
	_, err := in.Stream.Next()
	var reset *tunnel.ResetError
	ep := in.Endpoint
	if !errors.As(err, &reset) || reset.Code != tunnel.ResetUntrusted ||
		!r.allow(sealRefusal{ep.AccountID, in.OperatorID, in.CredentialID, ep.URL}, time.Now()) {
		return
	}
	details := map[string]string{"url": ep.URL, "cluster": in.Cluster, "operator": in.OperatorID}
	maps.DeleteFunc(details, func(_, value string) bool { return value == "" })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealRefusalTimeout)
	defer cancel()
	by := account.Caller{AccountID: ep.AccountID, PrincipalID: in.CredentialID}
	if err := r.store.RecordAudit(ctx, by, account.AuditSealRefused, ep.ID, details); err != nil {
		r.log.Warn("that a cluster refused an agent could not be written to the audit log", "endpoint", ep.ID,
			"err", err)
	}
}

// allow reports whether a refusal is to be recorded.
func (r *sealRefusals) allow(refusal sealRefusal, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isOld := func(_ sealRefusal, at time.Time) bool { return now.Sub(at) >= sealRefusalInterval }
	if at, ok := r.recorded[refusal]; ok && !isOld(refusal, at) {
		return false
	}
	if len(r.recorded) >= maxSealRefusals {
		if maps.DeleteFunc(r.recorded, isOld); len(r.recorded) >= maxSealRefusals {
			return false
		}
	}
	r.recorded[refusal] = now
	return true
}

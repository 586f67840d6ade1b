// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	maxQueuedSwitches    = 256 // that wait to be written
	backendSwitchTimeout = 5 * time.Second
)

// backendSwitch is a failover whose active child changed; "" is none.
type backendSwitch struct{ accountID, id, from, to string }

// enqueueSwitch queues the audit event of a failover whose active child changed. It does not block.
func (s *service) enqueueSwitch(accountID, id, from, to string) {
	s.log.Info("backend switched", "backend", id, "from", from, "to", to, "account", accountID)
	select {
	case s.backendSwitches <- backendSwitch{accountID, id, from, to}:
	default:
		s.log.Warn("the events of backends come faster than the store takes them; one is only in this log", "backend",
			id)
	}
}

// recordSwitches writes the audit events of switches until ctx is done.
func (s *service) recordSwitches(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-s.backendSwitches:
			s.recordSwitch(ctx, b)
		}
	}
}

func (s *service) recordSwitch(ctx context.Context, b backendSwitch) {
	ctx, cancel := context.WithTimeout(ctx, backendSwitchTimeout)
	defer cancel()
	details := map[string]string{"from": b.from, "to": b.to}
	if err := s.store.RecordAudit(ctx, account.Caller{AccountID: b.accountID}, account.AuditBackendSwitched, b.id,
		details); err != nil {
		s.log.Error("the event of a backend could not be written", "backend", b.id, "err", err)
	}
}

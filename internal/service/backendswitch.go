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
	// backendEvictInterval is how often a replica looks for failovers that it has not used lately.
	backendEvictInterval = time.Minute
)

// enqueueSwitch queues a change of a failover's active child for the store. It does not block. A
// server that is alone keeps switches only.
func (s *service) enqueueSwitch(c account.ActiveChildChange) {
	isSwitch := c.From != nil && c.To != nil
	if isSwitch {
		s.log.Info("backend switched", "backend", c.BackendID, "from", *c.From, "to", *c.To, "account", c.AccountID)
	} else if s.replica == nil {
		return
	}
	select {
	case s.backendSwitches <- c:
	default:
		if isSwitch {
			s.log.Warn("the events of backends come faster than the store takes them; one is only in this log",
				"backend", c.BackendID)
		}
	}
}

// recordSwitches writes the changes of active children until ctx is done.
func (s *service) recordSwitches(ctx context.Context) {
	evict := time.NewTicker(backendEvictInterval)
	defer evict.Stop()
	if s.replica == nil {
		evict.Stop() // the next connection does it
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-evict.C:
			s.backends.EvictIdle()
		case c := <-s.backendSwitches:
			s.recordSwitch(ctx, c)
		}
	}
}

func (s *service) recordSwitch(ctx context.Context, c account.ActiveChildChange) {
	ctx, cancel := context.WithTimeout(ctx, backendSwitchTimeout)
	defer cancel()
	if err := s.store.RecordActiveChild(ctx, c); err != nil {
		s.log.Error("the event of a backend could not be written", "backend", c.BackendID, "err", err)
	}
}

// activeChildrenOfReplicas returns a function that returns the children of failovers that serve with
// each replica; nil for a service that is alone.
func (s *service) activeChildrenOfReplicas() func(context.Context, string, []string) (
	map[string]map[string]string, error) {
	if s.replica == nil {
		return nil
	}
	return s.store.ActiveChildren
}

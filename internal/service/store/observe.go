// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// CallKind is the kind of access to the database that a call has.
type CallKind string

// Kinds of calls.
const (
	CallRead  CallKind = "read"
	CallWrite CallKind = "write"
)

// observe reports a call that began at began and whose result is *err to Options.OnCall. The
// database has not failed where ctx, of the call's caller, has ended.
func (s *Store) observe(ctx context.Context, kind CallKind, began time.Time, err *error) {
	if s.opt.OnCall == nil {
		return
	}
	code := account.CodeOf(*err)
	failed := code == account.CodeUnavailable || code == account.CodeInternal
	s.opt.OnCall(kind, time.Since(began), failed && ctx.Err() == nil)
}

// WaitingWrites returns how many calls wait for their turn to write.
func (s *Store) WaitingWrites() int {
	s.writes.mu.Lock()
	defer s.writes.mu.Unlock()
	return len(s.writes.waiting)
}

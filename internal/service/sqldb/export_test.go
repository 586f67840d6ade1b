// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"time"
)

// Hold waits for the turn and keeps it until release is called, so that calls wait.
func (w *Writes[T]) Hold(ctx context.Context) (release func(), err error) {
	hasTurn, err := w.queue.wait(&call[T]{ctx: ctx, turn: make(chan bool, 1)})
	if !hasTurn {
		return nil, err
	}
	return w.queue.pass, nil
}

// Deadline returns the time at which the transaction is given up.
func (t Tx) Deadline() (time.Time, bool) { return t.ctx.Deadline() }

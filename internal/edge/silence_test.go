// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// silentStream is the stream of an agent that does not respond between from and until, and reports
// that after delay.
type silentStream struct {
	from, until, delay time.Duration
	began              time.Time
}

// OnUnresponsive calls f at once if the delay is 0 and the agent does not respond.
func (s *silentStream) OnUnresponsive(f func()) (stop func()) {
	now := time.Since(s.began)
	switch at := max(now, s.from) + s.delay; {
	case at >= s.until:
		return func() {}
	case at == now:
		f()
		return func() {}
	default:
		timer := time.AfterFunc(at-now, f)
		return func() { timer.Stop() }
	}
}

var errSilent = errors.New("the agent does not respond")

func TestWatchSilence(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		silentStream
		patience, stopAt, want time.Duration
	}{
		"at once": {silentStream{from: 2 * time.Second, until: time.Hour}, 0, time.Hour, 2 * time.Second},
		"with patience": {silentStream{from: 2 * time.Second, until: time.Hour}, 6 * time.Second, time.Hour,
			8 * time.Second},
		"reported later": {silentStream{0, time.Hour, time.Second, time.Time{}}, 6 * time.Second, time.Hour,
			7 * time.Second},
		"it responds": {silentStream{until: 6 * time.Second}, 6 * time.Second, time.Hour, 0},
		"stopped":     {silentStream{until: time.Hour}, 6 * time.Second, 3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, gaveUp := tt.silentStream, time.Duration(0)
				s.began = time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				context.AfterFunc(ctx, func() { gaveUp = time.Since(s.began) })
				stop := watchSilence(&s, tt.patience, cancel, errSilent)
				time.Sleep(min(tt.stopAt, time.Minute))
				stop()
				time.Sleep(time.Minute)
				synctest.Wait()
				if gaveUp != tt.want || gaveUp > 0 && !errors.Is(context.Cause(ctx), errSilent) {
					t.Errorf("given up after %v, want %v, because of %v", gaveUp, tt.want, context.Cause(ctx))
				}
				cancel(nil)
			})
		})
	}
}

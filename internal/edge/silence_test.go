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
				stop := watchSilence(&s, tt.patience, cancel, errSilent).stop
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

// TestAnswerWatch holds that a sealed http connection is cut when the agent does not respond while the
// caller waits for an answer, and at no other time.
func TestAnswerWatch(t *testing.T) {
	t.Parallel()
	type moves map[int]string // by the second: "to" and "from" the agent
	for name, tt := range map[string]struct {
		silentStream
		moves moves
		want  time.Duration
	}{
		"does not respond": {silentStream{until: time.Hour}, moves{0: "to"}, 4 * time.Second},
		"idle":             {silentStream{until: time.Hour}, nil, 0},
		"slow upstream":    {silentStream{}, moves{0: "to", 50: "from"}, 0},
		"answered":         {silentStream{until: time.Hour}, moves{0: "to", 2: "from"}, 0},
		"answered late":    {silentStream{from: 10 * time.Second, until: time.Hour}, moves{0: "to", 5: "from"}, 0},
		"asked again": {silentStream{from: 10 * time.Second, until: time.Hour},
			moves{0: "to", 5: "from", 20: "to"}, 24 * time.Second},
		"upload goes on": {silentStream{until: time.Hour},
			moves{0: "to", 1: "to", 2: "to", 3: "to", 4: "to", 5: "to"}, 8500 * time.Millisecond},
		"goes on": {silentStream{until: 3500 * time.Millisecond}, moves{0: "to"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, cutAt := time.Now(), time.Duration(0)
				tt.began = began
				p := &pendingConn{edge: &Edge{stopping: t.Context()}}
				p.record.Store(&RequestRecord{})
				var conn targetConn = struct {
					targetConn
					*silentStream
				}{nil, &tt.silentStream}
				p.conn.Store(&conn)
				p.established.Store(true)
				stop := p.watchSealedHTTP(func(error) { cutAt = time.Since(began) })
				for second := range 60 {
					switch tt.moves[second] {
					case "to":
						p.count(1, 0)
					case "from":
						p.count(0, 1)
					}
					time.Sleep(time.Second)
				}
				if stop(); cutAt != tt.want {
					t.Errorf("cut after %v, want %v", cutAt, tt.want)
				}
			})
		})
	}
}

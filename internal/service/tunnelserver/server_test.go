// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestBind_LimitsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		allowed := 0
		for range 100 {
			if s.limits.limit(t.Context(), "cr-1", false) == nil {
				allowed++
			}
		}
		if allowed != bindsPerSecond {
			t.Errorf("%d binds at once were allowed, want %d", allowed, bindsPerSecond)
		}
		if err := s.limits.limit(t.Context(), "cr-1", false); account.CodeOf(err) != account.CodeTooMany {
			t.Errorf("one more: %v", err)
		}
		if err := s.limits.limit(t.Context(), "cr-2", false); err != nil {
			t.Errorf("another token: %v", err)
		}
		began := time.Now()
		for range 5 * resumesPerSecond {
			if err := s.limits.limit(t.Context(), "cr-1", true); err != nil {
				t.Fatalf("a resume: %v", err)
			}
		}
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("5000 resumes took %v: they queue at a pace, and none is refused", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.limits.limit(ctx, "cr-1", true); account.CodeOf(err) != account.CodeTooMany {
			t.Errorf("a cancelled resume: %v", err)
		}
		time.Sleep(time.Minute)
		s.limits.forget(time.Now())
		if len(s.limits.byID) != 0 {
			t.Errorf("%d limits are kept for tokens that do nothing", len(s.limits.byID))
		}
	})
}

func TestRun_RemovesUnstartedSessions(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	now := time.Now()
	s.sessions["ts-1"] = &session{accepted: now}
	s.forgetUnstarted(now.Add(startTimeout))
	if len(s.sessions) != 1 {
		t.Error("forgotten too early")
	}
	s.forgetUnstarted(now.Add(startTimeout + time.Second))
	if len(s.sessions) != 0 {
		t.Error("not forgotten")
	}
}

// failingStore fails a given number of times.
type failingStore struct {
	Store
	failures int
	lost     []string
}

func (b *failingStore) EndSession(_ context.Context, _, sessionID string, _ account.SessionEnd) error {
	if b.failures--; b.failures >= 0 {
		return account.Errorf(account.CodeUnavailable, "the store does not answer")
	}
	b.lost = append(b.lost, sessionID)
	return nil
}

func TestRun_RecordsSessionEndWhenStoreIsBack(t *testing.T) {
	t.Parallel()
	failing := &failingStore{failures: 2}
	s := New(Options{Edge: noEdge{}, Meter: noMeter{}, Store: failing, Logger: slog.New(slog.DiscardHandler)})
	ended := &tunnel.Session{} // its id is ""
	s.sessions[""] = &session{id: "ts-1", hello: tunnel.Hello{Role: tunnel.RoleAgent}, tun: ended}
	s.Down(ended, nil)
	for range 3 {
		s.retrySessionEnds(t.Context())
	}
	if len(failing.lost) != 1 || failing.lost[0] != "ts-1" || len(s.unrecorded) != 0 {
		t.Errorf("lost %v, still to do %v", failing.lost, s.unrecorded)
	}
}

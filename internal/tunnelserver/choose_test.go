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
)

// Only an agent that a restart of this server took away is waited for, for a while after that restart; an agent that is offline is that at once.
func TestWhoIsWorthWaitingFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost  time.Duration // before the start; 0 = online when it was read
		after time.Duration // since the start
		want  time.Duration
	}{
		"lost when the last life was killed":        {lost: time.Microsecond, want: holdTime},
		"lost at an orderly stop":                   {lost: 5 * time.Second, after: 2 * time.Second, want: holdTime},
		"when most are back":                        {lost: time.Second, after: 11 * time.Second, want: time.Second},
		"when all are back":                         {lost: time.Second, after: 12 * time.Second},
		"offline long before":                       {lost: 2 * time.Minute},
		"lost while this server runs":               {lost: -time.Second, after: 2 * time.Second},
		"online, and gone between look and choice":  {},
		"lost while this server runs, in the start": {lost: -time.Microsecond, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{Logger: slog.New(slog.DiscardHandler)})
				ep := &account.Endpoint{ID: "ep-1", Bindings: []string{account.BindingKubernetes}}
				if c.lost != 0 {
					at := s.started.Add(-c.lost)
					ep.OfflineSince = &at
				}
				time.Sleep(c.after) // the bubble's time
				asked := time.Now()
				_, err := s.Choose(t.Context(), ep)
				if account.CodeOf(err) != account.CodeEndpointOffline {
					t.Errorf("error %v", err)
				}
				if waited := time.Since(asked); waited != c.want {
					t.Errorf("waited %v, want %v", waited, c.want)
				}
			})
		})
	}
}

func TestAClientThatLeavesIsNotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Logger: slog.New(slog.DiscardHandler)})
		ep := &account.Endpoint{ID: "ep-1", Bindings: []string{account.BindingKubernetes}, OfflineSince: &s.started}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := time.Now()
		if _, err := s.Choose(ctx, ep); err == nil || time.Since(asked) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(asked))
		}
	})
}

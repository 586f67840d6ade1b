// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/live"
)

// withLease gives the harness a registry with a lease that is valid for a minute.
func withLease(w *harness) {
	l := lease.NewWithClock(time.Minute, lease.MonotonicClock)
	l.Beaten(l.Now())
	l.Compared(l.Now())
	w.live = live.New(l)
}

// TestAuthenticate_RefusesWithoutLease answers a request of a logged-in person as one whose session
// cannot be read, and does not send the person to log in.
func TestAuthenticate_RefusesWithoutLease(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]bool{"before the session is read": false, "during the reading": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newHarness(t, withLease)
			b := w.browser()
			b.login("/")
			if res := b.get("/"); res.upstream == nil {
				t.Fatalf("%s: %d with a lease", name, res.Code)
			}
			read := 0
			w.store.onRead = func(string) { time.Sleep(time.Minute); read++ }
			if !during {
				time.Sleep(time.Minute)
			}
			res := b.get("/")
			if res.Code != 503 || res.Header().Get("Retry-After") == "" || res.upstream != nil ||
				res.Header().Get(account.CodeHeader) != string(account.CodeUnavailable) {
				t.Errorf("%s: %d %v, passed: %t", name, res.Code, res.Header(), res.upstream != nil)
			}
			if during != (read == 1) {
				t.Errorf("%s: the session was read %d times", name, read)
			}
			if res := w.browser().get("/"); res.Code != 303 {
				t.Errorf("%s: without a session: %d", name, res.Code)
			}
		})
	}
}

// TestAuthenticate_ReadsSessionAgain reads a session again that a comparison with the store has
// missed.
func TestAuthenticate_ReadsSessionAgain(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		w := newHarness(t, withLease)
		b := w.browser()
		b.login("/")
		read := 0
		w.store.onRead = func(string) {
			if read++; read > 1 {
				return
			}
			w.live.Sessions()
			if ended {
				clear(w.store.sessions)
			}
		}
		if res := b.get("/"); ended == (res.upstream != nil) || ended && res.Code != 303 || !ended && read != 2 {
			t.Errorf("ended: %t: %d, read %d times", ended, res.Code, read)
		}
		if sessions, _ := w.live.Counts(); sessions != 0 {
			t.Error("a request is left")
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// stillLive asks as the sweep over what is being served does.
func (f *Fixture) stillLive(ids ...string) []bool {
	f.T.Helper()
	live, err := f.Store.LiveSessionIDs(f.ctx(), ids)
	Must(f.T, err)
	all := make([]bool, len(ids))
	for i, id := range ids {
		all[i] = live[id]
	}
	return all
}

// sessionTimes tests when sessions end and when their uses are written.
var sessionTimes = map[string]func(*testing.T, Open){
	"session: maximum duration": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		long := f.Login("alice", "long", func(l *account.NewLogin) { l.MaxDuration = 1000 * time.Hour * 24 })
		usual := f.Login("alice", "usual", func(l *account.NewLogin) { l.MaxDuration = 0 })
		short := f.Login("alice", "short", func(l *account.NewLogin) { l.NotAfter = f.Clock.Now().Add(time.Minute) })
		Equal(t, "lives", fmt.Sprint(long.ExpiresAt.Sub(f.Clock.Now()), usual.ExpiresAt.Sub(f.Clock.Now())),
			fmt.Sprint(account.MaxSessionDuration, account.DefaultSessionDuration))
		f.Clock.Step(time.Minute - time.Microsecond)
		Equal(t, "just before", f.Lives("short"), true)
		f.Clock.Step(time.Microsecond)
		Equal(t, "at its end", f.Lives("short"), false)
		Equal(t, "still live", fmt.Sprint(f.stillLive(long.ID, short.ID, "as-unknown")), "[true false false]")
		_, err := f.Store.AppSession(t.Context(), f.AccountID, short.ID)
		MustCode(t, err, account.CodeNotFound)
		Equal(t, "listed, counted", fmt.Sprint(len(f.Sessions(account.AppSessionFilter{})),
			f.Users(account.UserFilter{})[0].Sessions), "2 2")
		f.Clock.Step(account.MaxSessionDuration)
		for range 2 {
			Must(t, f.Store.Sweep(t.Context()))
		}
		Equal(t, "after all", fmt.Sprint(f.Lives("long"), len(f.Sessions(account.AppSessionFilter{})),
			len(f.Users(account.UserFilter{}))), "false 0 1")
		accessed, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, long.Identity.ID)
		Must(t, err)
		Equal(t, "accessed", len(accessed), 1)
	},
	"session: last device, and an event of its change": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		made := f.Login("alice", "s1")
		home := f.NewLogin("alice", "s1").Device
		use := func(d account.Device) *account.AppSession {
			t.Helper()
			live, err := f.Store.LiveSession(t.Context(), f.AccountID, TokenHash("s1"))
			Must(t, err)
			f.Store.RecordDevice(live, d)
			Must(t, f.Store.Sweep(t.Context()))
			a, err := f.Store.AppSession(t.Context(), f.AccountID, made.ID)
			Must(t, err)
			return a
		}
		moved, thief := home, home
		moved.IPAddress, thief.IPAddress, thief.UserAgent = "2001:db8::7", "198.51.100.7", account.UserAgent{
			Raw: "Mozilla/5.0", BrowserName: "Firefox", OSName: "Linux"}
		if a := use(home); a.LastDevice.IPAddress != home.IPAddress || a.DeviceChangedAt != nil {
			t.Errorf("used from where it began: %+v", a)
		}
		if a := use(moved); a.LastDevice.IPAddress != moved.IPAddress || a.DeviceChangedAt != nil ||
			a.Device.IPAddress != home.IPAddress {
			t.Errorf("used from another address: %+v", a)
		}
		events := len(f.audited().Events)
		for range 20 { // in turns: one event a minute at most
			use(thief)
			use(home)
		}
		a := use(thief)
		if a.LastDevice.UserAgent != thief.UserAgent || a.DeviceChangedAt == nil ||
			!a.DeviceChangedAt.Equal(f.Clock.Now()) {
			t.Errorf("used from another device: %+v", a)
		}
		Equal(t, "events", len(f.audited().Events), events+1)
		e := f.audited().Events[0]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal.ID, e.Details["ip"], e.Details["previous_ip"],
			e.Details["browser"], e.Details["previous_browser"]),
			fmt.Sprint(account.AuditAppDeviceChanged, made.ID, made.Identity.ID, thief.IPAddress, moved.IPAddress,
				"Firefox on Linux", "curl"))
		Equal(t, "found by the last address", len(f.Sessions(account.AppSessionFilter{Query: thief.IPAddress})), 1)
		f.Clock.Step(time.Minute)
		if a := use(home); a.LastDevice.UserAgent != home.UserAgent {
			t.Errorf("a minute later: %+v", a)
		}
		Equal(t, "events a minute later", len(f.audited().Events), events+2)
	},
	"session: idle time from the last use": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		for _, idle := range []time.Duration{2 * time.Second, 45 * time.Second, 2 * time.Minute, 15 * time.Minute} {
			for _, every := range []int{1, 3} { // uses between two sweeps
				secret := fmt.Sprint(idle, every)
				live := f.Login(secret, secret, func(l *account.NewLogin) { l.Idle, l.MaxDuration = idle, time.Hour })
				for i := range 12 {
					f.Clock.Step(idle - time.Millisecond)
					got, err := f.Store.LiveSession(t.Context(), f.AccountID, TokenHash(secret))
					if i >= 4 && idle == 15*time.Minute { // the end of its life
						MustCode(t, err, account.CodeNotFound)
						break
					}
					Must(t, err)
					Equal(t, "end", got.ExpiresAt, minTime(f.Clock.Now().Add(idle), live.ExpiresAt.Add(time.Hour-idle)))
					if i%every == 0 {
						Must(t, f.Store.Sweep(t.Context()))
					}
					Equal(t, "lives, as the sweep sees it", f.stillLive(live.ID)[0], true)
				}
				f.Clock.Step(idle)
				Equal(t, "unused", f.stillLive(live.ID)[0] || f.Lives(secret), false)
			}
		}
	},
	"session: uses written once a minute and on close": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start := f.Clock.Now()
		live := f.Login("alice", "s1", func(l *account.NewLogin) { l.Idle = 30 * time.Minute })
		other, err := open(f.opt) // sees what is written, and nothing else
		Must(t, err)
		defer func() { Must(t, other.Close()) }()
		written := func() time.Duration {
			a, err := other.AppSession(t.Context(), f.AccountID, live.ID)
			Must(t, err)
			u, err := other.User(t.Context(), f.AccountID, live.Identity.ID)
			Must(t, err)
			accessed, err := other.AccessedEndpoints(t.Context(), f.AccountID, live.Identity.ID)
			Must(t, err)
			Equal(t, "times of one use", fmt.Sprint(u.LastActive, accessed[0].Last, a.ExpiresAt),
				fmt.Sprint(a.LastActive, a.LastActive, a.LastActive.Add(30*time.Minute)))
			return a.LastActive.Sub(start)
		}
		for _, c := range []struct{ at, want time.Duration }{
			{30 * time.Second, 0}, {59 * time.Second, 0}, {60 * time.Second, 60 * time.Second},
			{100 * time.Second, 60 * time.Second}, {125 * time.Second, 125 * time.Second},
		} {
			f.Clock.Step(start.Add(c.at).Sub(f.Clock.Now()))
			Equal(t, "lives", f.Lives("s1"), true)
			a, err := f.Store.AppSession(t.Context(), f.AccountID, live.ID)
			Must(t, err)
			Equal(t, "last active", a.LastActive.Sub(start), c.at)
			Must(t, f.Store.Sweep(t.Context()))
			Equal(t, "written after "+c.at.String(), written(), c.want)
		}
		f.Clock.Step(time.Second)
		Equal(t, "lives", f.Lives("s1"), true)
		f.Restart()
		Equal(t, "written at the close", written(), 126*time.Second)
	},
	"users: deleted after their retention": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.KeepUsers = 48 * time.Hour })
		away := f.Login("away", "s1", func(l *account.NewLogin) { l.MaxDuration = 100 * time.Hour })
		f.Clock.Step(time.Millisecond)
		f.Login("here", "s2", func(l *account.NewLogin) { l.MaxDuration = 100 * time.Hour })
		f.Clock.Step(30 * time.Hour)
		Equal(t, "lives", f.Lives("s2"), true)
		Must(t, f.Store.Sweep(t.Context()))
		f.Clock.Step(18*time.Hour - time.Second - time.Millisecond)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "before", names(f.Users(account.UserFilter{})), "here away")
		f.Clock.Step(time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "after", names(f.Users(account.UserFilter{})), "here")
		Equal(t, "sessions after", fmt.Sprint(f.Lives("s1"), f.Lives("s2")), "false true")
		_, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, away.Identity.ID)
		MustCode(t, err, account.CodeNotFound)
		e := f.audited().Events[0]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal == nil, e.Details["reason"],
			e.Details["sessions"]),
			fmt.Sprint(account.AuditAppUserRevoked, away.Identity.ID, true, account.RevokedByRetention, "1"))
		back := f.Login("away", "s3", func(l *account.NewLogin) { l.AuthTime = time.Time{} })
		if back.Identity.ID == away.Identity.ID {
			t.Error("a forgotten user has the same id")
		}
	},
	"users: no retention by default": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Login("alice", "s1")
		f.Clock.Step(20 * 365 * 24 * time.Hour)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "users", len(f.Users(account.UserFilter{})), 1)
	},
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

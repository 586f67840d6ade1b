// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
)

// fakeLoginStore is a store of sessions whose answers a test sets.
type fakeLoginStore struct {
	account.Logins
	mu     sync.Mutex
	alive  map[string]bool
	asked  int
	broken error

	result *account.Revocation
	audit  []string // events, as text
}

func (p *fakeLoginStore) LiveSessionIDs(_ context.Context, _ []string) (map[string]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return maps.Clone(p.alive), p.broken
}

// setAlive sets the sessions that are alive, and the error of reads.
func (p *fakeLoginStore) setAlive(alive map[string]bool, broken error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive, p.broken = alive, broken
}

func (p *fakeLoginStore) Revoke(
	_ context.Context, _ account.Caller, sel account.RevokeSelector, _ string,
) (*account.Revocation, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	for _, id := range p.result.SessionIDs {
		delete(p.alive, id)
	}
	r := *p.result
	return &r, nil
}

func (p *fakeLoginStore) RecordAudit(
	_ context.Context, by account.Caller, what account.AuditType, objectID string, details map[string]string,
) error {
	at, err := time.Parse(time.RFC3339Nano, details["last_byte_before"])
	if err != nil || time.Since(at) > time.Hour {
		return errors.New("no time")
	}
	p.audit = append(p.audit,
		strings.Join([]string{by.AccountID, by.PrincipalID, string(what), objectID, details["reason"],
			details["sessions"], details["streams"]}, " "))
	return nil
}

// cutRecorder counts the cuts of each session.
type cutRecorder struct {
	mu sync.Mutex
	n  map[string]int
}

// recordedRequest is a request of the session with the id.
type recordedRequest struct {
	*cutRecorder
	id string
}

// Abort counts a cut of the session.
func (r recordedRequest) Abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = map[string]int{}
	}
	r.n[r.id]++
}

func (c *cutRecorder) request(id string) recordedRequest { return recordedRequest{c, id} }

// count returns how many requests of the session were cut.
func (c *cutRecorder) count(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func testRevoker(p *fakeLoginStore) (*revoker, *logbuffer.Buffer) {
	log := &logbuffer.Buffer{}
	meter := newRequestMeter(traffic.New(traffic.Options{MaxOwn: 1})).sessions
	return &revoker{store: p, liveSessions: live.New(nil), meter: meter,
		log: slog.New(slog.NewTextHandler(log, nil))}, log
}

func TestRevoker_CutsAndRecords(t *testing.T) {
	t.Parallel()
	p := &fakeLoginStore{result: &account.Revocation{UserIDs: []string{"au_1"}, SessionIDs: []string{"as_1", "as_2"}}}
	v, log := testRevoker(p)
	cut := &cutRecorder{}
	for _, id := range []string{"as_1", "as_1", "as_3"} {
		v.liveSessions.Register(cut.request(id)).SetSession(id)
	}
	by := account.Caller{AccountID: "acc_1", PrincipalID: "ak_1"}
	done, err := v.Revoke(t.Context(), by, account.RevokeSelector{UserID: "au_1"}, account.RevokedByAdmin)
	if err != nil || done.Streams != 2 || cut.n["as_1"] != 2 || cut.n["as_3"] != 0 {
		t.Errorf("%+v, %v; cut %v", done, err, cut.n)
	}
	if want := []string{"acc_1 ak_1 application_session.cut au_1 revoked 2 2"}; len(p.audit) != 1 ||
		p.audit[0] != want[0] {
		t.Errorf("the audit log has %q, want %q", p.audit, want)
	}
	for _, word := range []string{"by=ak_1", "reason=revoked", "au_1", "sessions=2", "streams=2"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the log lacks %s:\n%s", word, log)
		}
	}
	if n := testutil.ToFloat64(v.meter.cutRequests.WithLabelValues("revoked")); n != 2 ||
		testutil.CollectAndCount(v.meter.revocationSeconds) != 1 {
		t.Errorf("%v requests are counted", n)
	}
	// A session of which nothing is served, and a selector that matches nothing.
	p.result = &account.Revocation{SessionIDs: []string{"as_9"}}
	if _, err := v.Revoke(t.Context(), by, account.RevokeSelector{SessionID: "as_9"},
		account.RevokedByLogout); err != nil {
		t.Error(err)
	}
	lines := strings.Count(log.String(), "\n")
	p.result = &account.Revocation{}
	if _, err := v.Revoke(t.Context(), by, account.RevokeSelector{Issuer: "https://x", Subject: "unknown"},
		account.RevokedByBackChannel); err != nil {
		t.Error(err)
	}
	if len(p.audit) != 1 || lines != 2 || strings.Count(log.String(), "\n") != lines {
		t.Errorf("audit events %q; log:\n%s", p.audit, log)
	}
	p.broken = errors.New("no store")
	if _, err := v.Revoke(t.Context(), by, account.RevokeSelector{SessionID: "as_3"},
		account.RevokedByAdmin); !errors.Is(
		err, p.broken) || cut.n["as_3"] != 0 {
		t.Errorf("a store that does not answer: %v, cut %v", err, cut.n)
	}
}

func TestSweepSessions_CutsEndedSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &fakeLoginStore{alive: map[string]bool{"as_1": true, "as_2": true}}
		v, log := testRevoker(p)
		s := &people{set: &settings{}, log: v.log, live: v.liveSessions, logins: p, meter: v.meter}
		ctx, cancel := context.WithCancel(t.Context())
		swept := make(chan struct{})
		go func() { defer close(swept); s.sweepSessions(ctx) }()
		sweep := func() { time.Sleep(sessionSweepInterval); synctest.Wait() }
		sweep()
		if p.asked != 0 {
			t.Error("the store is asked though nothing is served")
		}
		cut := &cutRecorder{}
		entries := map[string]*live.Entry{}
		for _, id := range []string{"as_1", "as_2"} {
			entries[id] = v.liveSessions.Register(cut.request(id))
			entries[id].SetSession(id)
		}
		sweep()
		if p.asked != 1 || len(cut.n) != 0 {
			t.Errorf("asked %d times, cut %v", p.asked, cut.n)
		}
		p.setAlive(nil, errors.New("no store")) // without an answer no session is over
		sweep()
		sweep()
		if n := strings.Count(log.String(), "\n"); len(cut.n) != 0 || n != 1 {
			t.Errorf("without an answer: cut %v, %d lines:\n%s", cut.n, n, log)
		}
		p.setAlive(map[string]bool{"as_2": true}, nil)
		sweep()
		if cut.n["as_1"] != 1 || cut.n["as_2"] != 0 {
			t.Errorf("cut %v, want as_1", cut.n)
		}
		if n := testutil.ToFloat64(v.meter.cutRequests.WithLabelValues("expired")); n != 1 {
			t.Errorf("%v requests are counted", n)
		}
		entries["as_1"].Done()
		p.setAlive(nil, errors.New("no store"))
		sweep()
		if n := strings.Count(log.String(), "cannot be compared"); n != 2 {
			t.Errorf("a second failure: %d lines:\n%s", n, log)
		}
		cancel()
		<-swept
	})
}

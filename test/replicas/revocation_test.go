// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// lease is how long a server serves people without an answer of the store; the answer to a
// revocation waits a second longer at most.
const lease = 15 * time.Second

// openEverywhere opens a stream of each kind, each at another server.
func (p *person) openEverywhere() []*stream {
	p.s.t.Helper()
	return []*stream{p.open(0, eventsPath), p.open(1, websocketPath), p.open(2, downloadPath)}
}

// revoke revokes a person through a server and returns when that began and was answered.
func (p *person) revoke(server int) (began, answered time.Time) {
	p.s.t.Helper()
	began = time.Now()
	if err := p.s.replicas[server].api.DeleteObject(p.s.t.Context(), "/app/users/"+p.userID); err != nil {
		p.s.t.Fatalf("revoking: %v", err)
	}
	return began, time.Now()
}

// requireCut waits for the end of a stream, of which nothing may have come that was written after
// the answer, and returns when it ended.
func (s *stream) requireCut(t testing.TB, answered time.Time) time.Time {
	t.Helper()
	wait.Receive(t, "end of "+s.path, s.ended)
	if _, written := s.progress(); written.After(answered) {
		t.Errorf("%s: a line came that was written %s after the answer", s.path, written.Sub(answered))
	}
	return s.end()
}

// TestReplicas_RevocationCutsStreamsOfAllServers revokes people whose streams are at three servers.
func TestReplicas_RevocationCutsStreamsOfAllServers(t *testing.T) {
	t.Parallel()
	s := startRig(t, 3).startSite(t)
	other := s.logIn("other", 0)
	kept := other.openEverywhere()
	cuts, answers := s.revocationLatencies(t, number(t, revocationsVariable, 10))
	t.Logf("revocation: stream ends %s; answer %s", cuts, answers)
	p50, p99 := limit(10*time.Millisecond, time.Second), limit(50*time.Millisecond, 2*time.Second)
	if cuts.at(50) > p50 || cuts.at(99) > p99 {
		t.Errorf("streams end after %s, want p50 %s and p99 %s", cuts, p50, p99)
	}
	for _, k := range kept {
		before, _ := k.progress()
		wait.Until(t, "line of a stream of another person", func() bool { n, _ := k.progress(); return n > before })
	}
}

// revocationLatencies revokes people, each through the next server, and returns when their streams
// have ended and when the answer came.
func (s *site) revocationLatencies(t *testing.T, people int) (cuts, answers quantiles) {
	t.Helper()
	for i := range people {
		p := s.logIn(fmt.Sprintf("person-%d", i), i%3)
		streams := p.openEverywhere()
		began, answered := p.revoke((i + 1) % 3)
		answers = append(answers, answered.Sub(began))
		for server := range s.replicas {
			if served, err := p.isServed(server); served || err != nil {
				t.Errorf("server %d after the revocation: served %t, %v", server, served, err)
			}
		}
		for _, open := range streams {
			cuts = append(cuts, max(0, open.requireCut(t, answered).Sub(began)))
		}
	}
	return newQuantiles(cuts), newQuantiles(answers)
}

// TestReplicas_RevocationWithStoppedServer revokes a person while the process of a server is
// stopped that holds a stream: the answer comes after the server's lease, and nothing more is served
// when the process runs again.
func TestReplicas_RevocationWithStoppedServer(t *testing.T) {
	t.Parallel()
	s := startRig(t, 3).startSite(t)
	p := s.logIn("person", 0)
	streams := p.openEverywhere()
	streams = append(streams, p.open(2, eventsPath), p.open(2, websocketPath))
	s.replicas[2].signal(syscall.SIGSTOP)
	began, answered := p.revoke(0)
	took := answered.Sub(began)
	t.Logf("revocation with a stopped server: answered after %s", took)
	if most := limit(lease+1500*time.Millisecond, lease+8*time.Second); took > most {
		t.Errorf("answered after %s, want at most %s", took, most)
	}
	for _, open := range streams[:2] {
		if end := open.requireCut(t, answered); end.Sub(began) > limit(50*time.Millisecond, 2*time.Second) {
			t.Errorf("%s at a running server has ended after %s", open.path, end.Sub(began))
		}
	}
	var lines []int
	for _, open := range streams[2:] {
		n, _ := open.progress()
		lines = append(lines, n)
	}
	s.replicas[2].signal(syscall.SIGCONT)
	for i, open := range streams[2:] {
		open.requireCut(t, answered)
		if n, _ := open.progress(); n != lines[i] {
			t.Errorf("%s: %d lines came after the process was continued", open.path, n-lines[i])
		}
	}
	asked := 0
	wait.Until(t, "the server that was stopped to answer", func() bool {
		served, err := p.isServed(2)
		if served {
			t.Error("the server that was stopped serves the person")
		}
		if err == nil {
			asked++
		}
		return asked > 3
	})
	// until the store and the other servers have answered it once more, it refuses the person
	var again *person
	wait.Until(t, "the server that was stopped to let the person in", func() (in bool) {
		var err error
		again, err = s.tryLogIn("person", 2)
		return err == nil
	})
	if again.userID == p.userID {
		t.Error("the person has the revoked id after a new login")
	}
}

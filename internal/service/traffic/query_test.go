// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/peers"
)

// link makes a ask b and a replica that does not answer.
func link(a, b *testRecorder) {
	a.UsePeers("rp-a", linked{to: b, left: new(time.Time)})
	b.UsePeers("rp-b", linked{left: &b.lastLeft})
}

// linked are the replicas that link joins.
type linked struct {
	to   *testRecorder
	left *time.Time
}

func (l linked) AskTraffic(_ context.Context, question []byte) []peers.TrafficAnswer {
	body, err := l.to.Answer(question)
	return []peers.TrafficAnswer{{ReplicaID: "rp-z", Err: errors.New("no link")},
		{ReplicaID: "rp-b", Body: body, Err: err}, {ReplicaID: "rp-old", Body: []byte("404 page not found")}}
}

func (l linked) LastLeft() time.Time { return *l.left }

// TestRecorder_SumsReplicas records with two replicas, of which one has begun later.
func TestRecorder_SumsReplicas(t *testing.T) {
	t.Parallel()
	a, b := newRecorder(t, 0), newRecorder(t, 0)
	b.began = epoch.Add(5 * time.Second)
	link(a, b)
	a.record(request{took: 10 * time.Millisecond, uri: "/a"})
	b.at = b.at.Add(time.Second)
	b.record(request{took: 90 * time.Second, uri: "/b", status: 503})
	b.record(request{endpoint: "ep-2"})
	b.LoginFailed("ac-1", LoginFailure{At: b.at, EndpointID: "ep-1", Reason: "on b"})
	a.LoginFailed("ac-1", LoginFailure{At: a.at, EndpointID: "ep-1", Reason: "on a"})
	b.at = epoch
	a.pass(2)
	b.pass(2)
	s, c := a.Series(t.Context(), "ac-1", "ep-1", Hour)
	sum := total(s)
	if sum.Requests != 2 || sum.Status != [6]uint64{2: 1, 5: 1} || sum.Failed != 1 {
		t.Errorf("the sum is %+v", sum)
	}
	if p := s.Points[359]; p.P50 < 8*time.Millisecond || p.P50 > 13*time.Millisecond || p.P99 < 72*time.Second {
		t.Errorf("quantiles of both replicas: %+v", p)
	}
	want := []string{"rp-old", "rp-z"}
	if !c.Since.Equal(epoch) || !c.Complete.Equal(b.began) || !slices.Equal(c.Missing, want) {
		t.Errorf("coverage %+v", c)
	}
	b.lastLeft = epoch.Add(8 * time.Second)
	if _, c := a.Series(t.Context(), "ac-1", "ep-1", Hour); !c.Since.Equal(epoch) || !c.Complete.Equal(b.lastLeft) {
		t.Errorf("coverage after a replica has left: %+v", c)
	}
	if got, _ := a.Series(t.Context(), "ac-1", OfAccount, Hour); total(got).Requests != 3 {
		t.Errorf("the account: %+v", total(got))
	}
	recent, c := a.Recent(t.Context(), "ac-1", "ep-1", false, 10)
	if len(recent) != 2 || recent[0].Replica != "rp-b" || recent[1].Replica != "rp-a" || len(c.Missing) != 2 {
		t.Errorf("recent %+v, %+v", recent, c)
	}
	if rates, _ := a.Rates(t.Context(), "ac-1"); rates["ep-1"] != (Rate{2.0 / 60, 1.0 / 60}) ||
		rates["ep-2"].PerSecond == 0 {
		t.Errorf("rates %v", rates)
	}
	logins, _ := a.LoginFailures(t.Context(), "ac-1", 10)
	if len(logins) != 2 || logins[0].Reason != "on b" || logins[0].Replica != "rp-b" {
		t.Errorf("logins %+v", logins)
	}
}

// TestAnswer_RefusesMalformedQuestion asks in another language.
func TestAnswer_RefusesMalformedQuestion(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	if b, err := r.Answer([]byte("<question>")); err == nil {
		t.Errorf("answered %s", b)
	}
	for _, q := range []string{`{}`, `{"series":{"window":99,"first":5,"last":-5}}`, `{"recent":{"limit":-1}}`,
		`{"logins":{"limit":-1}}`, `{"rates":{}}`} {
		if _, err := r.Answer([]byte(q)); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
}

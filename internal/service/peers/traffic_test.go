// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// AnswerTraffic repeats the question, unless it is empty.
func (l *testLocal) AnswerTraffic(question []byte) ([]byte, error) {
	if len(question) == 0 {
		return nil, errors.New("an empty question")
	}
	return append([]byte("answer to "), question...), nil
}

// TestAskTraffic_NamesSilentReplicas asks a peer, and one that does not exist.
func TestAskTraffic_NamesSilentReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	asks, answers := c.start("rp-1"), c.start("rp-2")
	c.linked(asks, answers)
	c.registry.add("rp-3", closedport.Reserve(t))
	wait.Until(t, "the third replica is known", func() bool { return len(asks.Status()) == 2 })
	got := asks.AskTraffic(t.Context(), []byte("question"))
	if len(got) != 2 || got[0].ReplicaID != "rp-2" || string(got[0].Body) != "answer to question" ||
		got[0].Err != nil || got[1].ReplicaID != "rp-3" || got[1].Err == nil {
		t.Errorf("%+v", got)
	}
	if left := asks.LastLeft(); !left.IsZero() {
		t.Errorf("a replica has left at %s, before any did", left)
	}
	c.registry.remove("rp-3")
	wait.Until(t, "the third replica to be gone", func() bool { return !asks.LastLeft().IsZero() })
	if got := asks.AskTraffic(t.Context(), []byte("question")); len(got) != 1 {
		t.Errorf("of two replicas: %+v", got)
	}
	if got := asks.AskTraffic(t.Context(), nil); len(got) != 1 || got[0].Err == nil {
		t.Errorf("an invalid question: %+v", got)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestLegs_StreamsWhileReplicasAreReplaced replaces every replica several times under load: no
// stream is cut by a drain, or by a connection that is given up, and the session survives.
func TestLegs_StreamsWhileReplicasAreReplaced(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleForwarder, RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			testReplacedReplicas(t, role)
		})
	}
}

func testReplacedReplicas(t *testing.T, role Role) {
	r := newFakeReplicas(t, 3, roundRobin())
	c := r.startClient(ClientConfig{
		Hello:    func() Hello { return Hello{Role: role, Token: "flt_x"} },
		OnLegs:   func(s *Session) { _, _ = s.Legs(), s.WantedLegs() },
		OnStream: func(_ context.Context, _ *Session, st *Stream) { echo(st) },
	})
	s := c.awaitSession(t)
	wait.Until(t, "three legs", func() bool { return len(s.Legs()) == 3 })
	opener := func() *Session { return s }
	if role == RoleAgent {
		opener = func() *Session { return r.someReplica().session(s.ID()) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var streams atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if err := echoOnce(opener()); err != nil {
					t.Error(err)
					return
				}
				streams.Add(1)
			}
		})
	}
	for range 6 {
		before := streams.Load()
		leaves, fresh := r.live[0], r.start()
		leaves.drain(t, time.Minute)
		r.mu.Lock()
		r.live = r.live[1:]
		r.mu.Unlock()
		r.setNumber(2) // the number changes, too
		r.setNumber(3)
		wait.Until(t, "the end of the old leg", func() bool { return len(leaves.server.Sessions()) == 0 })
		wait.Until(t, "the new leg", func() bool { return fresh.session(s.ID()) != nil })
		wait.Until(t, "more streams", func() bool { return streams.Load() > before+20 })
	}
	cancel()
	load.Wait()
	if s != c.Session() || len(c.downs) != 0 {
		t.Error("the session did not survive")
	}
}

// someReplica returns a live replica.
func (r *fakeReplicas) someReplica() *fakeReplica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[rand.IntN(len(r.live))]
}

// echoOnce sends a few bytes over a stream and waits for their echo, unless s cannot open a stream
// now or the peer refuses it because it drains.
func echoOnce(s *Session) error {
	if s == nil || !s.CanOpen() {
		return nil
	}
	st, err := s.Open(context.Background(), fullHeader())
	if err != nil {
		var refused *Error
		if errors.As(err, &refused) && refused.Code == CodeDraining {
			return nil
		}
		return err
	}
	defer func() { _ = st.Close() }()
	_, _ = io.WriteString(st, "hello")
	_ = st.CloseWrite()
	b, err := io.ReadAll(struct{ io.Reader }{st})
	if err == nil && string(b) != "hello" {
		err = errors.New("the echo is " + string(b))
	}
	return err
}

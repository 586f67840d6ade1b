// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testenv/wait"
)

// TestLegs_StreamsWhileReplicasAreReplaced replaces every replica several times under load: no
// stream that was opened is cut by a drain, and the session survives.
func TestLegs_StreamsWhileReplicasAreReplaced(t *testing.T) {
	t.Parallel()
	r := newFakeReplicas(t, 3, roundRobin())
	c := r.startClient(ClientConfig{OnLegs: func(s *Session) { _, _ = s.Legs(), s.WantedLegs() }})
	s := c.awaitSession(t)
	wait.Until(t, "three legs", func() bool { return len(s.Legs()) == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var streams atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if err := echoOnce(s); err != nil {
					t.Error(err)
					return
				}
				streams.Add(1)
			}
		})
	}
	for range 6 {
		before := streams.Load()
		leaves := r.live[0]
		fresh := r.start()
		leaves.drain(t, time.Minute)
		r.mu.Lock()
		r.live = r.live[1:]
		r.mu.Unlock()
		r.setNumber(2 + int(before%2)) // the number changes, too
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

// echoOnce sends a few bytes over a stream and waits for their echo.
func echoOnce(s *Session) error {
	st, err := s.Open(context.Background(), fullHeader())
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	_, _ = io.WriteString(st, "hello")
	_ = st.CloseWrite()
	b, err := io.ReadAll(struct{ io.Reader }{st})
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Code == RefusedDraining {
		return nil // may be opened on another replica
	}
	if err == nil && string(b) != "hello" {
		err = errors.New("the echo is " + string(b))
	}
	return err
}

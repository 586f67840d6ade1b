// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func newTestPool(lifetime time.Duration) *pairPool {
	return newPairPool(lifetime, NewPairBudget(), "acc_1")
}

// awaitNoPairs waits until nothing but unused tickets is held of a budget whose streams have ended.
func awaitNoPairs(t *testing.T, b *PairBudget, issued *tickets) {
	t.Helper()
	wait.Until(t, "the end of all raw connections", func() bool {
		issued.mu.Lock()
		defer issued.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.held == len(issued.issued) && b.inUse.Load() == 0
	})
}

func TestPairBudget_BoundsAccountsAndProcess(t *testing.T) {
	t.Parallel()
	b := NewPairBudget()
	if b.limit <= 0 || b.limit != int(maxDescriptors()/2) {
		t.Errorf("the limit is %d of %d descriptors", b.limit, maxDescriptors())
	}
	b.limit = 4
	for i, c := range []struct {
		account string
		want    bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"c", true}, {"b", false}, {"d", false}} {
		if got := b.reserve(c.account); got != c.want {
			t.Errorf("%d: account %s got one: %v", i, c.account, got)
		}
	}
	b.release("a")
	if inUse, parked := b.Connections(); inUse != 0 || parked != 3 || !b.reserve("b") || b.reserve("a") {
		t.Errorf("%d in use, %d parked after the end of one of four", inUse, parked)
	}
}

// TestPairBudget_KeepsStreamsInMux holds that sealed streams run in the multiplexer where either end has no
// room for further raw connections, parked or in use, and over a raw connection once there is some.
func TestPairBudget_KeepsStreamsInMux(t *testing.T) {
	t.Parallel()
	for name, limited := range map[string]func(*testServer, *PairBudget) *PairBudget{
		"server": func(h *testServer, _ *PairBudget) *PairBudget { return h.server.cfg.PairBudget },
		"client": func(_ *testServer, b *PairBudget) *PairBudget { return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, overTCP, newHandler())
			own := NewPairBudget()
			b := limited(h, own)
			b.limit = 2 // one for an account
			s := h.startClient(ClientConfig{Connections: 1, PairBudget: own}).awaitSession(t)
			sealed := func() *Stream {
				st, err := s.Open(timeoutContext(t), OpenHeader{EndpointID: "e", Sealed: true})
				if err == nil {
					err = st.WaitOpened(timeoutContext(t))
				}
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			_ = sealed().Close()
			wait.Until(t, "a parked connection", func() bool { return usable(s) > 0 })
			first, second := sealed(), sealed()
			if first.pair == nil || second.pair != nil {
				t.Errorf("pairs: %v, %v", first.pair, second.pair)
			}
			if inUse, parked := b.Connections(); inUse != 1 || parked != 0 {
				t.Errorf("%d in use, %d parked", inUse, parked)
			}
			wait.Until(t, "the reason", func() bool { return own.SealedPaths(s).Paused[PairsLimit] == 1 })
			if _, err := askForTicket(t, s); name == "server" && !errors.As(err, new(*Error)) {
				t.Errorf("a ticket above the limit: %v", err)
			}
			_ = first.Close()
			wait.Until(t, "another parked connection", func() bool { return usable(s) > 0 })
			wait.Until(t, "the counts, once the server has refused a further one", func() bool {
				p := own.SealedPaths(s)
				return p.Raw == 1 && p.Mux == 2 && p.Parked == 1
			})
			if inPairs, inMux := h.server.cfg.PairBudget.Streams(RoleForwarder).Counts(); inPairs != 1 || inMux != 2 {
				t.Errorf("the server counts %d in pairs, %d in the multiplexer", inPairs, inMux)
			}
			_ = second.Close()
		})
	}
}

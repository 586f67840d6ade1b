// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A namespace that is being deleted waits for its pods, and for minutes when they are not gone within about 5 s.
func TestRemovedNamespaceIsLeftAtOnce(t *testing.T) {
	t.Parallel()
	const long = 15 * time.Minute
	still := func() (bool, error) { return true, nil }
	unlisted := func() (bool, error) { return false, nil }
	unreadable := func() (bool, error) { return false, errors.New("forbidden") }
	removedAfter := func(d time.Duration) func(context.Context, time.Duration) (bool, error) {
		return func(_ context.Context, since time.Duration) (bool, error) { return since >= d, nil }
	}
	for name, tt := range map[string]struct {
		listed        func() (bool, error)
		removed       func(ctx context.Context, since time.Duration) (bool, error)
		drain, accept time.Duration // set; how long connections are taken
		cut           time.Duration // when the last one ends
		says          int           // lines that say why
	}{
		"before the order to stop":     {still, removedAfter(0), long, 0, 2 * time.Second, 1},
		"with a shorter drain":         {still, removedAfter(0), time.Second, 0, time.Second, 1},
		"while EndpointSlices name it": {still, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second, 1},
		"while they cannot be read":    {unreadable, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second, 1},
		"while kube-proxy follows":     {unlisted, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second, 1},
		"as the last thing of leaving": {unlisted, removedAfter(9 * time.Second), long, 10 * time.Second, 12 * time.Second, 1},
		"never":                        {unlisted, removedAfter(time.Hour), long, 10 * time.Second, 10*time.Second + long, 0},
		"an error, whatever comes with it": {
			unlisted, func(context.Context, time.Duration) (bool, error) { return true, errors.New("forbidden") }, long,
			10 * time.Second, 10*time.Second + long, 0,
		},
		"no answer within 1 s": { // five questions, and what is left of the 10 s
			unlisted, func(ctx context.Context, _ time.Duration) (bool, error) { <-ctx.Done(); return true, ctx.Err() }, long,
			12 * time.Second, 12*time.Second + long, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := inBubble(t, tt.drain)
				b.source.listed = tt.listed
				b.source.say(tcpWorld())
				cut := make(chan struct{})
				b.serve = func(c connection) { <-b.connCtx.Done(); close(cut); _ = c.Close() } // never ends by itself
				if !b.connect() {
					t.Fatal("not accepting")
				}
				synctest.Wait() // the connection is served: one that is not yet is reset when the listener closes
				begun := time.Now()
				b.source.removed = func(ctx context.Context) (bool, error) { return tt.removed(ctx, time.Since(begun)) }
				b.stop()
				<-b.ln.closed
				if took := time.Since(begun); took != tt.accept {
					t.Errorf("accepted for %s, want %s", took, tt.accept)
				}
				<-cut
				if err := <-b.done; err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != tt.cut {
					t.Errorf("gone after %s, want %s", took, tt.cut)
				}
				if got := strings.Count(b.logged.String(), "the namespace is being deleted"); got != tt.says {
					t.Errorf("%d lines say why, want %d:\n%s", got, tt.says, &b.logged)
				}
			})
		})
	}
}

// Without connections there is nothing to drain.
func TestRemovedNamespaceDoesNotWaitForAnIdleForwarder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inBubble(t, 15*time.Minute)
		b.source.listed = func() (bool, error) { return true, nil }
		b.source.removed = func(context.Context) (bool, error) { return true, nil }
		b.source.say(tcpWorld())
		begun := time.Now()
		b.stop()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("an idle forwarder stayed for %s", took)
		}
	})
}

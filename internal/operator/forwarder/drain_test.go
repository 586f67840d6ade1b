// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// shutdownTest is a case of when a stopping forwarder learns that its installation is being
// uninstalled.
type shutdownTest struct {
	listed        func() (bool, error)
	removed       func(ctx context.Context, since time.Duration) (bool, error)
	drain, accept time.Duration // set; how long connections are taken
	cut           time.Duration // when the last one ends
	says          int           // lines that say why
}

func shutdownTests() map[string]shutdownTest {
	const long = 15 * time.Minute
	unauthorized := fmt.Errorf("reading namespace: %w", apierrors.NewUnauthorized("no"))
	still := func() (bool, error) { return true, nil }
	unlisted := func() (bool, error) { return false, nil }
	unreadable := func() (bool, error) { return false, errors.New("forbidden") }
	removedAfter := func(d time.Duration) func(context.Context, time.Duration) (bool, error) {
		return func(_ context.Context, since time.Duration) (bool, error) { return since >= d, nil }
	}
	return map[string]shutdownTest{
		"before the order to stop": {still, removedAfter(0), long, 0, 2 * time.Second, 1},
		"with a shorter drain":     {still, removedAfter(0), time.Second, 0, time.Second, 1},
		"while EndpointSlices name it": {still, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second,
			1},
		"while they cannot be read": {unreadable, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second,
			1},
		"while kube-proxy follows": {unlisted, removedAfter(5 * time.Second), long, 6 * time.Second, 8 * time.Second,
			1},
		"as the last thing of leaving": {unlisted, removedAfter(9 * time.Second), long, 10 * time.Second,
			12 * time.Second,
			1},
		"never": {unlisted, removedAfter(time.Hour), long, 10 * time.Second, 10*time.Second + long, 0},
		"an error, whatever comes with it": {
			unlisted, func(context.Context, time.Duration) (bool, error) { return true, errors.New("forbidden") }, long,
			10 * time.Second, 10*time.Second + long, 0,
		},
		"no answer": {
			unlisted, func(ctx context.Context, _ time.Duration) (bool, error) {
				<-ctx.Done()
				return true, ctx.Err()
			}, long,
			10 * time.Second, 10*time.Second + long, 0,
		},
		"while connections drain": {unlisted, removedAfter(5 * time.Minute), long, 10 * time.Second,
			5*time.Minute + 2*time.Second, 1},
		"at the end of the drain": {unlisted, removedAfter(long + 7*time.Second), long, 10 * time.Second,
			10*time.Second + long, 1},
		"a credential that is refused in passing": {
			unlisted, func(_ context.Context, since time.Duration) (bool, error) {
				if since%(12*time.Second) >= 10*time.Second {
					return false, nil
				}
				return false, unauthorized
			}, long, 10 * time.Second, 10*time.Second + long, 0,
		},
		"a credential that is refused now and then": {
			still, func(_ context.Context, since time.Duration) (bool, error) {
				if since%(4*time.Second) == 0 {
					return false, errors.New("forbidden")
				}
				return false, unauthorized
			}, long, DeregistrationTimeout + long, DeregistrationTimeout + long, 0,
		},
		"a credential that is refused for good": {
			still, func(context.Context, time.Duration) (bool, error) {
				return false, unauthorized
			}, long, 10 * time.Second, 12 * time.Second, 1,
		},
	}
}

// The deletion of a namespace is delayed by minutes if its pods are not gone within about 5 s.
func TestUninstall_ShortensShutdown(t *testing.T) {
	t.Parallel()
	for name, tt := range shutdownTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startInBubble(t, tt.drain)
				b.source.listed = tt.listed
				b.source.update(tcpObjects())
				cut := make(chan struct{})
				b.serve = func(c forward.Connection) { // never ends by itself
					<-b.connCtx.Done()
					close(cut)
					_ = c.Close()
				}
				if !b.connect() {
					t.Fatal("not accepting")
				}
				synctest.Wait() // the connection is served: one that is not yet is reset when the listener closes
				begun := time.Now()
				b.source.setDeleted(func(ctx context.Context) (bool, error) {
					return tt.removed(ctx, time.Since(begun))
				})
				b.stop()
				<-b.ln.Closed()
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
				if got := strings.Count(b.logged.String(), "stopping at once"); got != tt.says {
					t.Errorf("%d lines say why, want %d:\n%s", got, tt.says, &b.logged)
				}
			})
		})
	}
}

// Kubernetes marks a namespace 5 s before it deletes the pods: a forwarder knows before it is
// stopped, regardless of its credential's state then. A refusal while the forwarder is not stopping
// is ignored.
func TestUninstall_DetectedBeforeShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 15*time.Minute)
		b.source.listed = func() (bool, error) { return true, nil }
		refused := time.Now()
		b.source.setDeleted(func(context.Context) (bool, error) {
			if time.Since(refused) < time.Hour || time.Since(refused) > time.Hour+4*time.Second {
				return false, apierrors.NewUnauthorized("no")
			}
			return true, nil
		})
		b.source.update(tcpObjects())
		time.Sleep(time.Hour - time.Minute)
		select {
		case <-b.uninstall.known:
			t.Error("a refused credential ended a forwarder that is not being uninstalled")
		default:
		}
		if !b.connect() {
			t.Error("not accepting")
		}
		time.Sleep(time.Minute + 5*time.Second)
		begun := time.Now()
		b.stop()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("stayed for %s", took)
		}
	})
}

// TestUninstall_EndsIdleForwarderAtOnce checks that a forwarder without connections ends without a
// drain.
func TestUninstall_EndsIdleForwarderAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 15*time.Minute)
		b.source.listed = func() (bool, error) { return true, nil }
		b.source.setDeleted(func(context.Context) (bool, error) { return true, nil })
		b.source.update(tcpObjects())
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

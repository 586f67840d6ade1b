// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// eventTimeout limits how long a test waits for an event that should come at once.
const eventTimeout = 3 * time.Minute

// listen opens a stream of live updates and returns its status, and its events until it ends.
func (b *browser) listen(query string) (status int, events <-chan string, stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), eventTimeout)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/ui/live"+query, nil)
	must.Succeed(b.t, err)
	r.Header.Set("Accept", "text/event-stream")
	r.AddCookie(&http.Cookie{Name: CookieName(r.Host), Value: b.cookie[cookiePrefix]})
	res, err := http.DefaultTransport.RoundTrip(r)
	must.Succeed(b.t, err)
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				heard <- event
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); res.Body.Close() })
	return res.StatusCode, heard, cancel
}

// waitForEvent waits for an event; "" is the end of the stream.
func waitForEvent(t *testing.T, events <-chan string, wanted string) {
	t.Helper()
	for {
		select {
		case event := <-events:
			if event == wanted {
				return
			}
			if event == "" {
				t.Fatalf("the stream ended before %q", wanted)
			}
		case <-time.After(eventTimeout):
			t.Fatalf("no %q within %s", wanted, eventTimeout)
		}
	}
}

func TestLiveUpdates_SendChanges(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	srv := dashboardOf(t, f, func(o *Options) {
		o.Limits.SignInCheckInterval, o.Limits.Heartbeat = 10*time.Millisecond, 50*time.Millisecond
	})
	b := signedInAs(t, srv, "flk_read")
	status, events, _ := b.listen("?of=endpoints+audit")
	if status != http.StatusOK {
		t.Fatalf("the stream: %d", status)
	}
	waitForEvent(t, events, "hello")
	if n := f.subscribers(); n != 2 {
		t.Errorf("%d subscriptions, want one to endpoints and one to audit events", n)
	}
	f.change(func() {})
	waitForEvent(t, events, "change")
	waitForEvent(t, events, "beat")
	f.set(func() { f.keys = f.keys[:1] }) // the key is deleted
	waitForEvent(t, events, "end")
	waitForEvent(t, events, "")
	if n := f.subscribers(); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
	if status, _, _ := b.listen(""); status != http.StatusUnauthorized {
		t.Errorf("a stream without a sign-in: %d", status)
	}
}

func TestLiveUpdates_ObserveScopes(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	_, events, _ := signedInAs(t, srv, "flk_identities").listen("?of=endpoints+audit")
	waitForEvent(t, events, "hello")
	if n := f.subscribers(); n != 1 {
		t.Errorf("%d subscriptions, want one to audit events", n)
	}
}

func TestLiveUpdates_LimitStreams(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	srv := dashboardOf(t, f, func(o *Options) {
		o.Limits.StreamsPerAccount, o.Limits.SignInCheckInterval, o.Limits.StreamLifetime = 2, 10*time.Millisecond,
			time.Hour
	})
	b := signedInAs(t, srv, "flk_read")
	_, first, stop := b.listen("")
	_, second, _ := b.listen("")
	waitForEvent(t, first, "hello")
	waitForEvent(t, second, "hello")
	if status, _, _ := b.listen(""); status != http.StatusTooManyRequests {
		t.Errorf("a stream too many: %d", status)
	}
	stop()
	for { // the server notices that the browser is gone
		status, events, stop := b.listen("")
		if status == http.StatusOK {
			waitForEvent(t, events, "hello")
			break
		}
		stop()
	}
	f.set(func() { f.now = f.now.Add(2 * time.Hour); f.signIns = extendedSignIns(f) })
	waitForEvent(t, second, "") // a stream does not last for ever
}

// extendedSignIns returns every sign-in with a new lifetime.
func extendedSignIns(f *fake) map[string]signedIn {
	all := map[string]signedIn{}
	for hash, in := range f.signIns {
		all[hash] = signedIn{in.key, f.now.Add(account.DashboardLife)}
	}
	return all
}

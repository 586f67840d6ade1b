// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestRevocation_Latency holds streams of every kind open and measures how long it takes until they
// are cut: a part of them one after the other by DELETE /app/sessions/{id}, the rest by one DELETE
// /app/users/{id}. FAIRLEAD_REVOCATION_STREAMS=1500 asks for the figures of
// docs/identity/sessions.md; with fewer, it only checks that all end.
func TestRevocation_Latency(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it holds many streams")
	}
	n := 3 * len(kinds)
	if v := os.Getenv("FAIRLEAD_REVOCATION_STREAMS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		must.Succeed(t, err)
	}
	c := startSessionLoad(t, func(o *service.Options) { o.Public.MaxConnsPerClient = 10_000 })
	var single, crowd []*openRequest
	var shared *http.Client
	var session loadSession // of several streams; a person cannot have any number of sessions
	for i := range n {
		if i%100 == 0 {
			shared = c.http2()
		}
		kind, client := kinds[i%len(kinds)], shared
		if kind == "stalled http2" {
			// many of them would fill the flow control window of a shared connection, and block its
			// other requests
			client = c.http2()
		}
		if i < n/3 {
			single = append(single, c.open(kind, c.addSession(fmt.Sprint("single ", i), loadURL), client))
		} else {
			if len(crowd)%10 == 0 {
				session = c.addSession("crowd", loadURL)
			}
			crowd = append(crowd, c.open(kind, session, client))
		}
	}
	for _, o := range slices.Concat(single, crowd) {
		if strings.HasPrefix(o.kind, "download") || strings.HasPrefix(o.kind, "stalled") {
			o.waitStalled(t)
		}
	}
	revoke := c.adminClient()
	one, all := figures{}, figures{}
	for _, o := range single {
		c.cutAndMeasure(t, func() (int, error) {
			return revoke("DELETE", "/app/sessions/"+o.as.session)
		}, []*openRequest{o}, one)
	}
	c.cutAndMeasure(t, func() (int, error) { return revoke("DELETE", "/app/users/"+crowd[0].as.user) }, crowd, all)
	t.Logf("%d streams one after the other:\n%s", len(single), one)
	t.Logf("%d streams at once:\n%s", len(crowd), all)
}

// figures are durations by what was measured.
type figures map[string][]time.Duration

// cutAndMeasure revokes and waits until the streams have ended, on both sides.
func (c *sessionLoad) cutAndMeasure(t testing.TB, revoke func() (int, error), streams []*openRequest, f figures) {
	t.Helper()
	began := time.Now()
	status, err := revoke()
	for status == http.StatusTooManyRequests { // the limit of requests
		<-time.After(time.Second)
		began = time.Now()
		status, err = revoke()
	}
	answered := time.Since(began)
	if err != nil || status != http.StatusNoContent {
		t.Fatalf("DELETE: %d, %v", status, err)
	}
	note := func(what string, d time.Duration) { f[what] = append(f[what], d) }
	note("DELETE", answered)
	for _, o := range streams {
		stalledUpload, stalledDownload := strings.HasPrefix(o.kind, "stalled"), strings.HasPrefix(o.kind, "download")
		if !stalledUpload {
			note(o.kind+": upstream", servicetest.Receive(t, o.ended, "abort at the upstream of "+o.kind).Sub(began))
		}
		if stalledDownload {
			o.read()
		}
		close(o.more) // a client that uploads looks at its own body first
		e := servicetest.Receive(t, o.over, "end of "+o.kind)
		if e.err == nil && !strings.HasPrefix(o.kind, "websocket") {
			t.Errorf("%s ends as if it were whole", o.kind)
		}
		// these two notice the end only when they read or write
		if !stalledDownload && !strings.HasPrefix(o.kind, "upload") {
			note(o.kind+": client", e.at.Sub(began))
		}
	}
}

func (f figures) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(f)) {
		d := slices.Sorted(slices.Values(f[what]))
		at := func(p int) time.Duration { return d[(len(d)-1)*p/100].Round(100 * time.Microsecond) }
		fmt.Fprintf(&b, "%-26s %4d  p50 %-9s p99 %-9s max %s\n", what, len(d), at(50), at(99), at(100))
	}
	return b.String()
}

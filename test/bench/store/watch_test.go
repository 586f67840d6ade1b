// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

const (
	watchers   = 100
	perSecond  = 50
	creates    = 500
	maxLatency = 250 * time.Millisecond
)

// BenchmarkWatchers makes endpoints at a fixed rate in an account that has many, and takes the time
// from before each create until each watcher has read its event.
func BenchmarkWatchers(b *testing.B) {
	for name, open := range engines(b) {
		b.Run(name, func(b *testing.B) {
			f := newEndpointStore(b, open, many)
			_, key, err := f.IssueAPIKey(b.Context(), f.account, "", nil, nil)
			must(b, err)
			server := httptest.NewUnstartedServer(
				apiserver.New(apiserver.Options{Store: f, SharedOptions: httpkit.SharedOptions{
					BaseURL: "https://127.0.0.1", Logger: slog.New(slog.DiscardHandler)}}))
			server.StartTLS()
			defer server.Close()
			client, err := apiclient.New(apiclient.Options{BaseURL: server.URL, APIKey: func() (string, error) {
				return key, nil
			},
				TLS: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
					MinVersion: tls.VersionTLS13}})
			must(b, err)
			page, err := f.ListEndpoints(b.Context(), f.account, account.EndpointFilter{}, account.Page{Limit: 1})
			must(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			run := &watchLatency{b: b, begun: map[int64]time.Time{}}
			for range watchers {
				w, err := client.WatchEndpoints(ctx,
					account.EndpointFilter{Bindings: []string{account.BindingKubernetes}},
					page.Version)
				must(b, err)
				run.readers.Go(func() { defer w.Close(); run.read(w, page.Version.Seq, b.N*creates) })
			}
			b.ResetTimer()
			run.create(f, page.Version.Seq, b.N*creates)
			run.readers.Wait()
			p50, p99 := percentile(run.took, 0.5), percentile(run.took, 0.99)
			b.Logf("%d creates a second reached %d watchers in %s (p50), %s (p99); goal p99 at most %s", perSecond,
				watchers,
				p50, p99, maxLatency)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(p99.Milliseconds()), "p99-ms")
			if p99 > maxLatency {
				b.Errorf("p99 is %s", p99)
			}
		})
	}
}

// watchLatency collects how long events took to reach the watchers.
type watchLatency struct {
	b       *testing.B
	readers sync.WaitGroup
	mu      sync.Mutex
	begun   map[int64]time.Time // by number of the event
	took    []time.Duration
}

func (r *watchLatency) create(f *endpointStore, last int64, count int) {
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for i := range count {
		<-tick.C
		r.mu.Lock()
		r.begun[last+int64(i)+1] = time.Now()
		r.mu.Unlock()
		f.create()
	}
}

func (r *watchLatency) read(w *apiclient.Watch, last int64, count int) {
	for range count {
		e, err := w.Next()
		for err == nil && e.Type == account.Bookmark {
			e, err = w.Next()
		}
		now := time.Now()
		if last++; err != nil || e.ResourceVersion.Seq != last {
			r.b.Errorf("event %v, error %v, want number %d", e.ResourceVersion, err, last)
			return
		}
		r.mu.Lock()
		r.took = append(r.took, now.Sub(r.begun[last]))
		r.mu.Unlock()
	}
}

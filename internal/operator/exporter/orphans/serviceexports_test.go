// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var serviceExports = schema.GroupResource{Group: "multicluster.x-k8s.io", Resource: "serviceexports"}

// exportsReader is an API server whose answer to every Get is err.
type exportsReader struct {
	*world

	err error
}

func (r exportsReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

// exported returns an endpoint of the ServiceExport team-a/name: a record, or a port that is
// offline.
func exported(name, url string) account.Endpoint {
	e := endpoint(name)
	e.ID, e.URL, e.Bindings, e.Owner.Kind = "ep-"+url, url, []string{account.BindingClusterset},
		account.KindServiceExport
	if url[:7] == "service" {
		e.Type, e.Status = account.TypeCloud, account.StatusOnline
	}
	return e
}

func TestCollect_Exports(t *testing.T) {
	t.Parallel()
	const record, port, oldPort = "service://hello.team-a.a", "tcp://hello.team-a.a:42", "tcp://hello.team-a.a:41"
	notFound := apierrors.NewNotFound(serviceExports, "hello")
	exists := map[types.NamespacedName][]string{{Namespace: "team-a", Name: "hello"}: {port}}
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", serviceExports, "hello", "404", 0, true)
	for name, tt := range map[string]struct {
		exports map[types.NamespacedName][]string
		unknown bool
		live    error
		online  bool // the ports
		want    []string
		fails   bool
	}{
		"the export is gone":            {live: notFound, want: []string{record, oldPort, port}},
		"its ports are online":          {live: notFound, online: true, want: []string{record}},
		"it exists":                     {exports: exists, live: notFound, want: []string{oldPort}},
		"only the cache lacks it":       {},
		"another exporter's namespace":  {live: apierrors.NewForbidden(serviceExports, "hello", nil)},
		"the exports are not known yet": {unknown: true, live: notFound},
		"the kind is not served":        {live: unserved},
		"the API server is away":        {live: errors.New("away"), fails: true},
	} {
		w := newWorld(0)
		for _, url := range []string{record, port, oldPort} {
			e := exported("hello", url)
			if tt.online && e.Type == account.TypeAgent {
				e.Status = account.StatusOnline
			}
			w.endpoints[e.ID] = e
		}
		c := w.collector()
		c.Live = exportsReader{w, tt.live}
		c.Exports = portURLs{tt.exports, !tt.unknown}
		if err := c.Collect(t.Context()); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
		slices.Sort(w.deletions)
		if !slices.Equal(w.deletions, tt.want) {
			t.Errorf("%s: deleted %v, want %v", name, w.deletions, tt.want)
		}
	}
}

// TestRun_Soon: a round that is asked for does not wait.
func TestRun_Soon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		soon := make(chan struct{}, 1)
		c := w.collector()
		c.Soon = soon
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		synctest.Wait()
		w.mu.Lock()
		w.remove("api-01")
		w.mu.Unlock()
		soon <- struct{}{}
		synctest.Wait()
		w.mu.Lock()
		w.expect(t, "api-01")
		w.mu.Unlock()
		if time.Since(w.began) > 0 {
			t.Error("time has passed")
		}
		stop()
		<-done
	})
}

// portURLs are the URLs of the ports of ServiceExports.
type portURLs struct {
	urls  map[types.NamespacedName][]string
	known bool
}

func (p portURLs) PortURLs(context.Context) (map[types.NamespacedName][]string, bool, error) {
	return p.urls, p.known, nil
}

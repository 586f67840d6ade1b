// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/orphans"
)

// world is an account and a cluster with the objects team-a/NAME.
type world struct {
	client.Reader // nil: what is not implemented is not called

	mu          sync.Mutex // held by a test that has called run, but while time passes
	endpoints   map[string]account.Endpoint
	lists       int
	listErr     error
	deleteErr   error
	deletions   []string
	objects     map[string]string // name -> URL, of the API server
	cached      map[string]string // of the cache
	liveErr     error
	cacheErr    error
	deletedWhen []time.Duration
	began       time.Time
}

// newWorld returns a world with n AgentEndpoints that are offline.
func newWorld(n int) *world {
	w := &world{endpoints: map[string]account.Endpoint{}, objects: map[string]string{}, began: time.Now()}
	for i := range n {
		name := fmt.Sprintf("api-%02d", i)
		w.objects[name] = "http://" + name + ".team-a"
		w.endpoints["ep-"+name] = endpoint(name)
	}
	w.cached = maps.Clone(w.objects)
	return w
}

func endpoint(name string) account.Endpoint {
	return account.Endpoint{ID: "ep-" + name, URL: "http://" + name + ".team-a", Type: account.TypeAgent,
		Status: account.StatusOffline, Bindings: []string{account.BindingKubernetes},
		Owner: &account.Owner{Cluster: "c1", Kind: account.KindAgentEndpoint, Namespace: "team-a", Name: name,
			UID: "u"}}
}

func (w *world) remove(names ...string) {
	for _, name := range names {
		delete(w.objects, name)
		delete(w.cached, name)
	}
}

func (w *world) ListEndpoints(context.Context, account.EndpointFilter) (*apiclient.EndpointSnapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	if w.listErr != nil {
		return nil, w.listErr
	}
	return &apiclient.EndpointSnapshot{Endpoints: slices.Collect(maps.Values(w.endpoints))}, nil
}

func (w *world) DeleteEndpoint(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deleteErr != nil {
		return w.deleteErr
	}
	w.deletions = append(w.deletions, strings.TrimPrefix(id, "ep-"))
	w.deletedWhen = append(w.deletedWhen, time.Since(w.began))
	delete(w.endpoints, id)
	return nil
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if agents, ok := list.(*v1alpha1.AgentEndpointList); ok {
		for name, url := range w.cached {
			o := v1alpha1.AgentEndpoint{Spec: v1alpha1.AgentEndpointSpec{URL: url}}
			o.Namespace, o.Name = "team-a", name
			agents.Items = append(agents.Items, o)
		}
	}
	return w.cacheErr
}

func (w *world) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.liveErr != nil {
		return w.liveErr
	}
	url, ok := w.objects[key.Name]
	if agent, isAgent := o.(*v1alpha1.AgentEndpoint); ok && isAgent && key.Namespace == "team-a" {
		agent.Spec.URL = url
		return nil
	}
	return apierrors.NewNotFound(agentEndpoints, key.Name)
}

var agentEndpoints = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "agentendpoints"}

func (w *world) collector() *orphans.Collector {
	return &orphans.Collector{Account: w, Cached: w, Live: w, Replica: w, Log: logr.Discard()}
}

func (w *world) Cluster() string { return "c1" }
func (w *world) Leading() bool   { return true }

func (w *world) collect(t *testing.T, want ...string) {
	t.Helper()
	if err := w.collector().Collect(t.Context()); err != nil {
		t.Error(err)
	}
	w.expect(t, want...)
}

// expect checks the deletions since the last call.
func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(w.deletions)
	if !slices.Equal(w.deletions, want) {
		t.Errorf("deleted %v, want %v", w.deletions, want)
	}
	w.deletions = nil
}

func TestCollect_DeletesEndpointsWithoutObject(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	w.collect(t)
	w.remove("api-01")
	w.collect(t, "api-01")
	w.collect(t)
	w.objects["api-02"], w.cached["api-02"] = "http://other.team-a", "http://other.team-a" // deleted and made again
	w.collect(t, "api-02")
	w.objects["api-00"], w.cached["api-00"] = "http://API-00.team-a:80/", "http://API-00.team-a:80/"
	w.collect(t)
}

// TestCollect_KeepsWhatIsNotItsOwn checks what is never an orphan.
func TestCollect_KeepsWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*account.Endpoint){
		"online":             func(e *account.Endpoint) { e.Status = account.StatusOnline },
		"of another cluster": func(e *account.Endpoint) { e.Owner.Cluster = "c2" },
		"of no owner":        func(e *account.Endpoint) { e.Owner = nil },
		"of a later kind":    func(e *account.Endpoint) { e.Owner.Kind = "Gateway" },
		"of exports, which this exporter does not have": func(e *account.Endpoint) {
			e.Owner.Kind = account.KindServiceExport
		},
		"of a type of others": func(e *account.Endpoint) { e.Type = account.TypeCloud },
	} {
		w := newWorld(0)
		e := endpoint("gone")
		change(&e)
		w.endpoints[e.ID] = e
		if w.collect(t); t.Failed() {
			t.Errorf("%s: see above", name)
		}
	}
}

// TestCollect_AsksAPIServer checks that an object that only the cache lacks keeps its endpoint.
func TestCollect_AsksAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	delete(w.cached, "api-01")
	w.collect(t)
}

// TestCollector_CountsHeldDeletions checks what the metric shows between the two rounds.
func TestCollector_CountsHeldDeletions(t *testing.T) {
	t.Parallel()
	w := newWorld(12)
	w.remove(slices.Sorted(maps.Keys(w.objects))[:7]...)
	c := w.collector()
	for _, want := range []int{7, 0} {
		if err := c.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.Held(); got != want {
			t.Errorf("%d deletions are held, want %d", got, want)
		}
	}
}

func TestCollect_DeletesNothingAfterError(t *testing.T) {
	t.Parallel()
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", agentEndpoints, "api-01",
		"404 page not found", 0, true)
	for name, c := range map[string]struct {
		fail    func(*world)
		reports bool
	}{
		"the account's list fails": {func(w *world) { w.listErr = errors.New("a page is missing") }, true},
		"the cache is not filled":  {func(w *world) { w.cacheErr = errors.New("not synced") }, true},
		"the API server is away":   {func(w *world) { w.liveErr = errors.New("connection refused") }, true},
		"the kind is not served":   {func(w *world) { w.liveErr = unserved }, true},
		"another exporter's namespace": {func(w *world) {
			w.liveErr = apierrors.NewForbidden(agentEndpoints, "api-01", nil)
		}, false},
	} {
		w := newWorld(3)
		w.remove("api-01")
		c.fail(w)
		if err := w.collector().Collect(t.Context()); (err != nil) != c.reports {
			t.Errorf("%s: %v", name, err)
		}
		w.expect(t)
	}
}

func TestCollect_TakesEndpointThatIsBoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(3)
	w.remove("api-00", "api-01")
	w.deleteErr = account.Errorf(account.CodeInUse, "it is online")
	w.collect(t)
	w.deleteErr = account.Errorf(account.CodeUnreachable, "the service is away")
	if err := w.collector().Collect(t.Context()); err == nil {
		t.Error("a deletion that failed is not reported")
	}
}

// run runs a collector until the test has ended, and returns after its first round.
func (w *world) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.collector().Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
	w.mu.Lock()
}

// pass lets time pass, and rounds happen.
func (w *world) pass(d time.Duration) {
	w.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
}

// TestRun_HoldsMassDeletion checks that more than half of ten endpoints go only after a second
// round a minute later, and only those that both rounds found.
func TestRun_HoldsMassDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(12)
		gone := slices.Sorted(maps.Keys(w.objects))[:7]
		back, late := gone[0], "api-11"
		w.remove(gone...)
		w.run(t)
		w.expect(t)
		w.pass(59 * time.Second)
		w.expect(t)
		w.objects[back], w.cached[back] = "http://"+back+".team-a", "http://"+back+".team-a"
		w.remove(late)
		w.pass(2 * time.Second)
		w.expect(t, gone[1:]...)
		w.pass(11 * time.Minute)
		w.expect(t, late)
	})
}

// TestRun_SecondRoundMustAgree checks that a held deletion is forgotten when the next round finds
// the objects.
func TestRun_SecondRoundMustAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(12)
		all := maps.Clone(w.objects)
		clear(w.objects)
		clear(w.cached)
		w.run(t)
		w.pass(50 * time.Second)
		maps.Copy(w.objects, all)
		maps.Copy(w.cached, all)
		w.pass(time.Minute)
		clear(w.objects)
		clear(w.cached)
		for before := w.lists; w.lists == before; {
			w.pass(time.Second)
		}
		w.expect(t) // held anew
	})
}

// TestRun_FewAreNotHeld checks the bounds of the mass rule: half of many, or all of few.
func TestRun_FewAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := newWorld(9)
		few.remove(slices.Sorted(maps.Keys(few.objects))...)
		few.run(t)
		half := newWorld(12)
		half.remove(slices.Sorted(maps.Keys(half.objects))[:6]...)
		half.run(t)
		if len(few.deletions) != 9 || len(half.deletions) != 6 {
			t.Errorf("deleted %v and %v at once", few.deletions, half.deletions)
		}
	})
}

func TestRun_RepeatsRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		w.run(t)
		if w.lists != 1 {
			t.Errorf("%d rounds at the start", w.lists)
		}
		w.listErr = errors.New("the service is away")
		w.pass(11*time.Minute + time.Second)
		if w.lists < 2 || w.lists > 4 { // at 9 to 11 min, and then every minute
			t.Errorf("%d rounds in 11 minutes", w.lists)
		}
		before := w.lists
		w.listErr = nil
		w.remove("api-00")
		w.pass(61 * time.Second)
		if w.lists != before+1 {
			t.Errorf("%d rounds in the minute after an error", w.lists-before)
		}
		w.expect(t, "api-00")
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// fakeSource is a Source whose responses the test sets.
type fakeSource struct {
	list  func() (Snapshot, error)
	watch func(account.ResourceVersion) (apiclient.EndpointWatch, error)
	calls []string
	at    []time.Time
}

func (s *fakeSource) note(call string) {
	s.calls, s.at = append(s.calls, call), append(s.at, time.Now())
}

func (s *fakeSource) List(context.Context) (Snapshot, error) {
	s.note("list")
	return s.list()
}

func (s *fakeSource) Watch(ctx context.Context, v account.ResourceVersion) (apiclient.EndpointWatch, error) {
	s.note("watch " + v.String())
	w, err := s.watch(v)
	if tape, ok := w.(*fakeWatch); ok {
		tape.ctx = ctx
	}
	return w, err
}

// fakeWatch is a watch that returns events and then err, or waits for the context if err is nil.
type fakeWatch struct {
	ctx    context.Context
	events []account.EndpointEvent
	err    error
}

func (p *fakeWatch) Next() (account.EndpointEvent, error) {
	if len(p.events) > 0 {
		e := p.events[0]
		p.events = p.events[1:]
		return e, nil
	}
	if p.err == nil {
		<-p.ctx.Done()
		return account.EndpointEvent{}, p.ctx.Err()
	}
	return account.EndpointEvent{}, p.err
}

func (p *fakeWatch) Close() {}

// play runs a Feed in a synctest bubble for d.
func play(t *testing.T, s *fakeSource, d time.Duration, check func(*Feed, *Set)) {
	t.Helper()
	playFrom(t, s, func(*Feed) {}, d, check)
}

// playFrom calls begin with the Feed before it runs it.
func playFrom(t *testing.T, s *fakeSource, begin func(*Feed), d time.Duration, check func(*Feed, *Set)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		set := newSet(admitFunc(all))
		report := NewReporter(t.Context(), &events.FakeRecorder{}, fake.NewClientBuilder().Build(),
			installation.Installation{})
		f := &Feed{Source: s, Set: set, Report: report, Hostnames: notify.New("", 0), Availability: notify.New("", 0),
			Imports: notify.New("", 0), Live: live(t, interceptor.Funcs{}), Log: logr.Discard()}
		begin(f)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Start(ctx) }()
		time.Sleep(d) // the bubble's time, which passes at once
		synctest.Wait()
		check(f, set)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// live reads from a cluster without a KubernetesOperator.
func live(t *testing.T, reading interceptor.Funcs) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(reading).Build()
}

func listOf(seq int64, endpoints ...account.Endpoint) func() (Snapshot, error) {
	return func() (Snapshot, error) {
		return Snapshot{Endpoints: endpoints, Version: version(seq), AccountID: "ac-1", StoreID: "st-1"}, nil
	}
}

func TestFeed_ResumesBrokenWatch(t *testing.T) {
	watches := 0
	s := &fakeSource{list: listOf(5)}
	s.watch = func(account.ResourceVersion) (apiclient.EndpointWatch, error) {
		watches++
		if watches == 1 {
			return &fakeWatch{err: io.ErrUnexpectedEOF, events: []account.EndpointEvent{
				event(account.Added, 6, agentEndpoint("ep-1", "http://a.b")),
				{Type: account.Bookmark, ResourceVersion: version(9)},
			}}, nil
		}
		return &fakeWatch{}, nil
	}
	play(t, s, time.Minute, func(f *Feed, set *Set) {
		if want := []string{"list", "watch 1-5", "watch 1-9"}; !slices.Equal(s.calls, want) {
			t.Errorf("got %v, want %v", s.calls, want)
		}
		if len(set.Desired("a.b").Endpoints) != 1 || set.Removals().Recorded.AccountID != "ac-1" {
			t.Errorf("got %+v, %+v", set.Desired("a.b"), set.Removals())
		}
	})
}

func TestFeed_RelistsWhenVersionIsGone(t *testing.T) {
	s := &fakeSource{list: listOf(5, agentEndpoint("ep-1", "http://a.b"))}
	s.watch = func(v account.ResourceVersion) (apiclient.EndpointWatch, error) {
		if v.Seq == 5 {
			s.list = listOf(50, agentEndpoint("ep-2", "http://c.d"))
			return nil, account.Errorf(account.CodeGone, "compacted")
		}
		return &fakeWatch{}, nil
	}
	play(t, s, time.Minute, func(_ *Feed, set *Set) {
		if want := []string{"list", "watch 1-5", "list", "watch 1-50"}; !slices.Equal(s.calls, want) {
			t.Errorf("got %v, want %v", s.calls, want)
		}
		if len(set.Desired("a.b").Endpoints) != 0 || len(set.Desired("c.d").Endpoints) != 1 {
			t.Error("the second list was not taken")
		}
	})
}

func TestFeed_PollsWithoutWatch(t *testing.T) {
	s := &fakeSource{list: listOf(5), watch: func(account.ResourceVersion) (apiclient.EndpointWatch, error) {
		return nil, apiclient.ErrWatchUnsupported
	}}
	play(t, s, 5*time.Minute, func(f *Feed, _ *Set) {
		lists, watches := 0, 0
		for _, c := range s.calls {
			if c == "list" {
				lists++
			} else {
				watches++
			}
		}
		if lists < 25 || lists > 35 || watches < 5 || watches > 6 {
			t.Errorf("in 5 minutes %d lists and %d watches", lists, watches)
		}
		if !f.Status().Polling {
			t.Error("it does not say that it polls")
		}
	})
}

func TestFeed_ListsAgainAtServerWithoutClusterset(t *testing.T) {
	lists := 0
	s := &fakeSource{watch: func(account.ResourceVersion) (apiclient.EndpointWatch, error) { return &fakeWatch{}, nil }}
	s.list = func() (Snapshot, error) {
		lists++ // the server is updated after the third
		return Snapshot{Version: version(5), AccountID: "ac-1", StoreID: "st-1", WithoutClusterset: lists <= 3}, nil
	}
	begin := func(f *Feed) { f.Set.clusterset = true }
	playFrom(t, s, begin, 2*clustersetRetry-time.Second, func(f *Feed, _ *Set) {
		if want := []string{"list", "watch 1-5", "list", "watch 1-5"}; !slices.Equal(s.calls, want) {
			t.Errorf("got %v, want %v", s.calls, want)
		}
		if !f.Status().WithoutClusterset || f.Status().Err != nil {
			t.Errorf("got %+v", f.Status())
		}
	})
	lists = 3
	playFrom(t, s, begin, time.Hour, func(f *Feed, set *Set) {
		_, known := set.Exports(hello)
		if lists != 4 || f.Status().WithoutClusterset || !known {
			t.Errorf("%d lists, status %+v, known %v", lists, f.Status(), known)
		}
	})
}

func TestFeed_RetriesFailuresWithinTwoSeconds(t *testing.T) {
	for name, failure := range map[string]error{
		"refused": errors.New("connection refused"), "unavailable": account.Errorf(account.CodeUnavailable, "stopping"),
		"unknown key": account.Errorf(account.CodeUnknownCredential, "unknown API key"),
		"internal":    account.Errorf(account.CodeInternal, "oops"),
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeSource{list: listOf(5, agentEndpoint("ep-1", "http://a.b"))}
			watches := 0
			s.watch = func(account.ResourceVersion) (apiclient.EndpointWatch, error) {
				if watches++; watches == 1 {
					return &fakeWatch{err: failure}, nil
				}
				s.list = func() (Snapshot, error) { return Snapshot{}, failure }
				return nil, failure
			}
			play(t, s, time.Minute, func(f *Feed, set *Set) {
				if len(set.Desired("a.b").Endpoints) != 1 {
					t.Error("an endpoint was lost")
				}
				if !errors.Is(f.Status().Err, failure) {
					t.Errorf("got %v", f.Status().Err)
				}
				if failing := time.Since(f.Status().Since); failing < 50*time.Second || failing > time.Minute {
					t.Errorf("failing for %s, want as long as nothing works", failing)
				}
				for i := 1; i < len(s.at); i++ {
					if pause := s.at[i].Sub(s.at[i-1]); pause > apiclient.MaxPause {
						t.Errorf("a pause of %s before %s", pause, s.calls[i])
					}
				}
				if len(s.calls) < 30 {
					t.Errorf("only %d tries in a minute", len(s.calls))
				}
			})
		})
	}
}

func TestSet_UnknownBeforeFirstList(t *testing.T) {
	s := &fakeSource{list: func() (Snapshot, error) { return Snapshot{}, errors.New("page 2: unexpected EOF") }}
	play(t, s, time.Minute, func(_ *Feed, set *Set) {
		if set.SyncedOrAwait("a.b") {
			t.Error("synced without a complete list")
		}
	})
}

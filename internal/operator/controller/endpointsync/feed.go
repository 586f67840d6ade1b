// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

const (
	pollEvery    = 10 * time.Second // if the server does not support watches
	rewatchEvery = time.Minute      // how often a watch is tried again on such a server
)

// Source reads the account's kubernetes-bound endpoints, and what clusters export.
type Source interface {
	// List returns all of them, or an error: a Snapshot is complete.
	List(ctx context.Context) (Snapshot, error)
	// Watch streams the events after the version. The error has account.CodeGone if the version is
	// no longer available, and is apiclient.ErrWatchUnsupported if the server has no watches.
	Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error)
}

// Snapshot is a complete list.
type Snapshot struct {
	Endpoints          []account.Endpoint
	Version            account.ResourceVersion
	AccountID, StoreID string
	// WithoutClusterset reports that the server does not know account.BindingClusterset: what
	// clusters export is not in the list.
	WithoutClusterset bool
}

// AccountSource reads the account's kubernetes-bound endpoints, and with Clusterset what clusters
// export. It is used by one goroutine.
type AccountSource struct {
	API        *apiclient.Client
	Clusterset bool
	// withoutClusterset reports that the latest list is one without account.BindingClusterset,
	// which the server does not know, and watchRefused that a watch since then has found that out.
	withoutClusterset, watchRefused bool
}

// List implements Source. A server that refuses account.BindingClusterset is asked without it. While
// the servers behind one address are updated, some know it and others do not: the list that follows
// a refused watch is one without it.
func (s *AccountSource) List(ctx context.Context) (Snapshot, error) {
	ask := s.Clusterset && !s.watchRefused
	s.watchRefused = false
	if ask {
		snapshot, err := s.list(ctx, account.BindingKubernetes, account.BindingClusterset)
		if !isRefused(err) {
			s.withoutClusterset = false
			return snapshot, err
		}
	}
	snapshot, err := s.list(ctx, account.BindingKubernetes)
	s.withoutClusterset = s.Clusterset
	snapshot.WithoutClusterset = s.withoutClusterset
	return snapshot, err
}

func (s *AccountSource) list(ctx context.Context, bindings ...string) (Snapshot, error) {
	list, err := s.API.ListEndpoints(ctx, account.EndpointFilter{Bindings: bindings})
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Endpoints: list.Endpoints, Version: list.Version, AccountID: list.AccountID,
		StoreID: list.StoreID}, nil
}

// Watch implements Source: it watches what the latest list had.
func (s *AccountSource) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	bindings := []string{account.BindingKubernetes}
	ask := s.Clusterset && !s.withoutClusterset
	if ask {
		bindings = append(bindings, account.BindingClusterset)
	}
	w, err := s.API.WatchEndpoints(ctx, account.EndpointFilter{Bindings: bindings}, after)
	if err != nil {
		s.watchRefused = ask && isRefused(err)
		return nil, err
	}
	return w, nil
}

// isRefused reports whether the server answered that the request is wrong.
func isRefused(err error) bool {
	var e *account.Error
	return errors.As(err, &e) && e.HTTPStatus() == http.StatusBadRequest
}

// Feed keeps a Set up to date: it reads a complete list and watches from the list's version,
// resuming after failures. A failure changes nothing in the Set.
type Feed struct {
	Source Source
	Set    *Set
	// Report is told of every change's problems, and the sources of its hostnames, of those whose
	// availability has changed, and of ServiceImports.
	Report                           *Reporter
	Hostnames, Availability, Imports *notify.Source
	// Live reads, before the first list, which account an earlier manager recorded in the
	// installation's KubernetesOperator.
	Live         client.Reader
	Installation installation.Installation
	Log          logr.Logger

	recordedLoaded bool
	mu             sync.Mutex
	status         FeedStatus
}

// FeedStatus is the state of the Feed.
type FeedStatus struct {
	// Polling reports that the server does not support watches.
	Polling bool
	// WithoutClusterset reports that the server does not know what clusters export.
	WithoutClusterset bool
	// Err is why the account cannot be read, or nil.
	Err error
	// Since is when Err first occurred; zero if Err is nil.
	Since time.Time
}

// Status returns the feed's state. It is safe for concurrent use.
func (f *Feed) Status() FeedStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Start runs the feed until the context ends. It returns nil.
func (f *Feed) Start(ctx context.Context) error {
	apiclient.Follow(ctx, "the account's endpoints", feedFollower{f})
	return nil
}

// feedFollower is a Feed as apiclient.Follow uses it.
type feedFollower struct{ *Feed }

// List implements apiclient.Follower.
func (f feedFollower) List(ctx context.Context) (account.ResourceVersion, error) { return f.list(ctx) }

// Watch implements apiclient.Follower. At a server without watches it lists periodically.
func (f feedFollower) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	w, err := f.Source.Watch(ctx, after)
	unsupported := errors.Is(err, apiclient.ErrWatchUnsupported)
	if unsupported {
		w, err = &poll{feed: f.Feed, ctx: ctx, until: time.Now().Add(rewatchEvery)}, nil
	}
	if err == nil {
		f.setPolling(unsupported)
	}
	return w, err
}

// Apply implements apiclient.Follower.
func (f feedFollower) Apply(e account.EndpointEvent) {
	f.recordSuccess()
	if e.Type != account.Bookmark {
		f.notify(f.Set.Apply(e))
	}
}

// Fail implements apiclient.Follower. It logs an error that is another one than the last.
func (f feedFollower) Fail(err error) {
	f.mu.Lock()
	changed := f.status.Err == nil || f.status.Err.Error() != err.Error()
	if f.status.Err == nil {
		f.status.Since = time.Now()
	}
	f.status.Err = err
	f.mu.Unlock()
	if changed {
		f.Log.Error(err, "The account cannot be read; projected endpoints stay, and reading is retried")
	}
}

// MaxPause implements apiclient.Follower.
func (feedFollower) MaxPause(error) time.Duration { return apiclient.MaxPause }

// AwaitListDue implements apiclient.Follower.
func (f feedFollower) AwaitListDue(ctx context.Context) {
	for due := false; !due && ctx.Err() == nil; {
		at, changed := f.Set.nextList()
		wait, stop := ctx, context.CancelFunc(func() {})
		if !at.IsZero() {
			wait, stop = context.WithDeadline(ctx, at)
		}
		select {
		case <-changed:
		case <-wait.Done():
			due = true
		}
		stop()
	}
}

// poll lists, with jitter, in place of a watch, until one is to be tried again.
type poll struct {
	feed  *Feed
	ctx   context.Context
	until time.Time
}

// Next implements apiclient.EndpointWatch.
func (p *poll) Next() (account.EndpointEvent, error) {
	if !time.Now().Before(p.until) {
		return account.EndpointEvent{}, io.EOF
	}
	if !timer.Sleep(p.ctx, pollEvery*9/10+rand.N(pollEvery/5)) {
		return account.EndpointEvent{}, p.ctx.Err()
	}
	version, err := p.feed.list(p.ctx)
	return account.EndpointEvent{Type: account.Bookmark, ResourceVersion: version}, err
}

// Close implements apiclient.EndpointWatch.
func (*poll) Close() {}

func (f *Feed) list(ctx context.Context) (account.ResourceVersion, error) {
	if err := f.loadRecordedSource(ctx); err != nil {
		return account.ResourceVersion{}, err
	}
	requested := time.Now()
	snapshot, err := f.Source.List(ctx)
	if err != nil {
		return account.ResourceVersion{}, fmt.Errorf("listing the account's endpoints: %w", err)
	}
	f.notify(f.Set.Replace(snapshot, requested))
	f.setWithoutClusterset(snapshot.WithoutClusterset)
	f.recordSuccess()
	return snapshot.Version, nil
}

// notify reports a change of the account as events and to the controllers.
func (f *Feed) notify(c Change) {
	f.Report.ReportProblems(c.Problems)
	f.Hostnames.NotifyAll(c.Hostnames)
	f.Availability.NotifyAll(c.Availability)
	f.Imports.NotifyObjects(c.Exports)
}

func (f *Feed) loadRecordedSource(ctx context.Context) error {
	if f.recordedLoaded {
		return nil
	}
	var o v1alpha1.KubernetesOperator
	key := client.ObjectKey{Namespace: f.Installation.Namespace, Name: f.Installation.Release}
	if err := f.Live.Get(ctx, key, &o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading which account was recorded: reading KubernetesOperator %s: %w", key, err)
	}
	f.Set.SetRecordedSource(SourceIdentity{AccountID: o.Status.AccountID, StoreID: o.Status.StoreID})
	f.recordedLoaded = true
	return nil
}

func (f *Feed) setPolling(polling bool) {
	f.setState(&f.status.Polling, polling, "Watching the account's endpoints instead of listing them",
		"This server does not support watches; listing the endpoints every 10 s, so changes take that long")
}

func (f *Feed) setWithoutClusterset(without bool) {
	f.setState(&f.status.WithoutClusterset, without,
		"This server knows the binding clusterset now; importing what other clusters export",
		"This server does not know the binding clusterset: nothing is imported from other clusters, and imports that "+
			"exist stay as they are; update the server", "retryAfter", clustersetRetry.String())
}

// setState sets a part of the status, and logs that it began or ended.
func (f *Feed) setState(state *bool, value bool, ended, began string, details ...any) {
	f.mu.Lock()
	changed := *state != value
	*state = value
	f.mu.Unlock()
	switch {
	case changed && value:
		f.Log.Info(began, details...)
	case changed:
		f.Log.Info(ended)
	}
}

func (f *Feed) recordSuccess() {
	f.mu.Lock()
	recovered := f.status.Err != nil
	f.status.Err, f.status.Since = nil, time.Time{}
	f.mu.Unlock()
	if recovered {
		f.Log.Info("The account can be read again")
	}
}

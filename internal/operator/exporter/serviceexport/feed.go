// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

const (
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 2 * time.Second
	// refusedBackoff is the greatest pause after the service refused to list or to watch.
	refusedBackoff = 30 * time.Second
	// refreshInterval is the least time between two lists that were asked for.
	refreshInterval = 10 * time.Second
)

// recordsFilter selects the records of all clusters of the account.
var recordsFilter = account.EndpointFilter{Bindings: []string{account.BindingClusterset}, Type: account.TypeCloud}

// Watch is an open watch of endpoints; *apiclient.Watch is one.
type Watch interface {
	Next() (account.EndpointEvent, error)
	Close()
}

// WatchFunc opens a watch that continues after a version.
type WatchFunc func(ctx context.Context, f account.EndpointFilter, v account.ResourceVersion) (Watch, error)

// feed keeps the records up to date: it lists and then watches, and lists again when a watch cannot
// be resumed.
type feed struct {
	account Account
	watch   WatchFunc
	records *records
	log     logr.Logger
	refresh chan struct{} // holds a value when a list is asked for
	logged  string        // the failure that was logged last; used by run only
}

func newFeed(o *Options, r *records) *feed {
	return &feed{account: o.Account, watch: o.Watch, records: r, log: o.Log, refresh: make(chan struct{}, 1)}
}

// requestList asks for a complete list soon.
func (f *feed) requestList() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// run runs until the context ends, while this replica leads.
func (f *feed) run(ctx context.Context) {
	f.records.reset() // what an earlier run left
	var tries backoff
	for ctx.Err() == nil {
		version, err := f.list(ctx)
		if err == nil {
			tries.reset()
			err = f.watchFrom(ctx, version)
		}
		switch {
		case errors.Is(err, errListDue), ctx.Err() != nil:
			continue
		case account.CodeOf(err) != account.CodeGone: // else the account no longer has the version
			f.fail(err)
		}
		timer.Sleep(ctx, tries.next(accountclient.Unanswered(err)))
	}
}

func (f *feed) list(ctx context.Context) (account.ResourceVersion, error) {
	snapshot, err := f.account.ListEndpoints(ctx, recordsFilter)
	switch {
	case account.CodeOf(err) == account.CodeInvalid:
		return account.ResourceVersion{}, fmt.Errorf("the service does not know exports of Services: update "+
			"fairlead-server to the version of this exporter (%w)", err)
	case err != nil:
		return account.ResourceVersion{}, fmt.Errorf("listing the exports of the account: %w", err)
	}
	f.records.replace(snapshot.Endpoints, snapshot.Version)
	f.succeed()
	return snapshot.Version, nil
}

// watchFrom watches from the version on, resuming a watch that broke, until a list is needed or the
// context ends.
func (f *feed) watchFrom(ctx context.Context, version account.ResourceVersion) error {
	var tries backoff
	for ctx.Err() == nil {
		reached, err := f.watchOnce(ctx, version)
		if reached != version {
			version = reached
			tries.reset()
		}
		switch {
		case errors.Is(err, errListDue), !errors.Is(err, io.EOF) && !accountclient.Unanswered(err):
			return err
		case !errors.Is(err, io.EOF) && ctx.Err() == nil: // else the service ended it, as for a restart
			f.fail(err)
		}
		timer.Sleep(ctx, tries.next(true))
	}
	return ctx.Err()
}

// errListDue ends a watch when a complete list was asked for.
var errListDue = errors.New("a complete list is due")

// watchOnce runs one watch until it breaks, and returns the version up to which everything was
// applied.
func (f *feed) watchOnce(ctx context.Context, version account.ResourceVersion) (account.ResourceVersion, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	defer func() { <-done }()
	defer cancel(nil)
	go func() {
		defer close(done)
		if timer.Sleep(ctx, refreshInterval) {
			select {
			case <-f.refresh:
				cancel(errListDue)
			case <-ctx.Done():
			}
		}
	}()
	w, err := f.watch(ctx, recordsFilter, version)
	if err != nil {
		return version, fmt.Errorf("watching the exports of the account: %w", err)
	}
	defer w.Close()
	for {
		event, err := w.Next()
		if cause := context.Cause(ctx); errors.Is(cause, errListDue) {
			return version, cause
		}
		if err != nil {
			return version, fmt.Errorf("watching the exports of the account: %w", err)
		}
		f.succeed()
		if event.Type != account.Bookmark {
			f.records.apply(event)
		}
		version = event.ResourceVersion
	}
}

func (f *feed) succeed() {
	if f.logged != "" {
		f.logged = ""
		f.log.Info("The exports of the account can be read again")
	}
}

// fail records a failure, and logs it if it is another one than the last.
func (f *feed) fail(err error) {
	f.records.fail(err)
	if err.Error() != f.logged {
		f.logged = err.Error()
		f.log.Error(err, "The exports of the account cannot be read; it is tried again")
	}
}

// backoff grows from firstBackoff, with full jitter.
type backoff struct{ limit time.Duration }

func (b *backoff) reset() { b.limit = 0 }

// next returns the next pause, which is shorter for a service that does not answer: it returns at
// any moment.
func (b *backoff) next(unanswered bool) time.Duration {
	limit := refusedBackoff
	if unanswered {
		limit = maxBackoff
	}
	b.limit = min(max(2*b.limit, firstBackoff), limit)
	return rand.N(b.limit)
}

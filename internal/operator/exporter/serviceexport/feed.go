// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

const (
	// refusedPause is the greatest pause after the service refused to list.
	refusedPause = 30 * time.Second
	// refreshInterval is the least time between two lists that were asked for.
	refreshInterval = 10 * time.Second
)

// recordsFilter selects the records of all clusters of the account.
var recordsFilter = account.EndpointFilter{Bindings: []string{account.BindingClusterset}, Type: account.TypeCloud}

// WatchFunc opens a watch that continues after a version.
type WatchFunc func(context.Context, account.EndpointFilter, account.ResourceVersion) (apiclient.EndpointWatch, error)

// feed keeps the records up to date: it lists and then watches, and lists again when a watch cannot
// be resumed.
type feed struct {
	account accountclient.Endpoints
	watch   WatchFunc
	records *records
	log     logr.Logger
	refresh notify.Signal // asks for a complete list soon
	logged  string        // the failure that was logged last; used by run only
}

func newFeed(o *Options, r *records) *feed {
	return &feed{account: o.Account, watch: o.Watch, records: r, log: o.Log, refresh: notify.NewSignal()}
}

// run runs until the context ends, while this replica leads.
func (f *feed) run(ctx context.Context) {
	f.records.reset() // what an earlier run left
	apiclient.Follow(ctx, "the exports of the account", f)
}

// List implements apiclient.Follower.
func (f *feed) List(ctx context.Context) (account.ResourceVersion, error) {
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

// Watch implements apiclient.Follower.
func (f *feed) Watch(ctx context.Context, after account.ResourceVersion) (apiclient.EndpointWatch, error) {
	return f.watch(ctx, recordsFilter, after)
}

// Apply implements apiclient.Follower.
func (f *feed) Apply(e account.EndpointEvent) {
	f.succeed()
	if e.Type != account.Bookmark {
		f.records.apply(e)
	}
}

// Fail implements apiclient.Follower. It logs a failure that is another one than the last.
func (f *feed) Fail(err error) {
	f.records.fail(err)
	if err.Error() != f.logged {
		f.logged = err.Error()
		f.log.Error(err, "The exports of the account cannot be read; it is tried again")
	}
}

// MaxPause implements apiclient.Follower. It is short for a service that does not answer: it
// returns at any moment.
func (f *feed) MaxPause(err error) time.Duration {
	if accountclient.Unanswered(err) {
		return apiclient.MaxPause
	}
	return refusedPause
}

// AwaitListDue implements apiclient.Follower.
func (f *feed) AwaitListDue(ctx context.Context) {
	if timer.Sleep(ctx, refreshInterval) {
		select {
		case <-f.refresh:
		case <-ctx.Done():
		}
	}
}

func (f *feed) succeed() {
	if f.logged != "" {
		f.logged = ""
		f.log.Info("The exports of the account can be read again")
	}
}

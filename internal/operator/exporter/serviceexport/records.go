// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

// record is what the account has of an export.
type record struct {
	clusterset.Export
	ownerUID string // ownerUID is that of the ServiceExport.
	version  account.ResourceVersion
}

// recordOf returns the record that an endpoint is.
func recordOf(e *account.Endpoint) (record, bool) {
	export, ok := clusterset.ExportOf(e)
	if !ok {
		return record{}, false
	}
	return record{Export: export, ownerUID: e.Owner.UID, version: e.ResourceVersion}, true
}

func (r *record) name() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// listener is notified of a name whose record has changed, and when what records.state returns has;
// *exportNames implements it. Its methods must not block.
type listener interface {
	notify(name types.NamespacedName)
	notifyAll()
}

// records are those of all clusters of the account, as far as this replica knows them. It is safe
// for concurrent use.
type records struct {
	exports listener

	mu     sync.Mutex
	byID   map[string]record
	byName map[types.NamespacedName][]string // ids
	listed bool                              // there was a complete list, which is kept up to date
	err    error                             // why there was none
}

func newRecords(exports listener) *records {
	return &records{exports: exports, byID: map[string]record{}, byName: map[types.NamespacedName][]string{}}
}

// state reports whether the records are known, or why they are not.
func (s *records) state() (known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed, s.err
}

// of returns the records of a name.
func (s *records) of(name types.NamespacedName) []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]record, 0, len(s.byName[name]))
	for _, id := range s.byName[name] {
		found = append(found, s.byID[id])
	}
	return found
}

// ofCluster returns the records of a cluster.
func (s *records) ofCluster(uid string) (found []record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		if r.ClusterUID == uid {
			found = append(found, r)
		}
	}
	return found
}

// replace takes a complete list of a version. What this replica has written since then stays.
func (s *records) replace(endpoints []account.Endpoint, version account.ResourceVersion) {
	next := map[string]record{}
	for i := range endpoints {
		if r, ok := recordOf(&endpoints[i]); ok {
			next[r.ID] = r
		}
	}
	s.mu.Lock()
	var changed []types.NamespacedName
	for id, r := range s.byID {
		switch now, ok := next[id]; {
		case r.version.Epoch == version.Epoch && isAfter(r.version, version):
			next[id] = r
		case !ok || now.version != r.version:
			changed = append(changed, r.name())
		}
	}
	for id, r := range next {
		if _, ok := s.byID[id]; !ok {
			changed = append(changed, r.name())
		}
	}
	s.byID, s.byName = next, map[types.NamespacedName][]string{}
	for id, r := range next {
		s.byName[r.name()] = append(s.byName[r.name()], id)
	}
	becameKnown := !s.listed
	s.listed, s.err = true, nil
	s.mu.Unlock()
	for _, name := range changed {
		s.exports.notify(name)
	}
	if becameKnown {
		s.exports.notifyAll()
	}
}

// fail records why there is no list. After a first list, a failure changes nothing.
func (s *records) fail(err error) {
	s.mu.Lock()
	changed := !s.listed && (s.err == nil || s.err.Error() != err.Error())
	if !s.listed {
		s.err = err
	}
	s.mu.Unlock()
	if changed {
		s.exports.notifyAll()
	}
}

// reset forgets everything.
func (s *records) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byID)
	clear(s.byName)
	s.listed, s.err = false, nil
}

// apply takes an event of the watch.
func (s *records) apply(e account.EndpointEvent) {
	switch r, ok := recordOf(e.Endpoint); {
	case !ok:
	case e.Type == account.Deleted:
		r.version = e.ResourceVersion
		s.drop(r)
	default:
		s.put(r, true)
	}
}

// put takes a record, unless a newer state of it is known; one that is not known only if isNew.
func (s *records) put(r record, isNew bool) {
	s.mu.Lock()
	before, had := s.byID[r.ID]
	if had && !isAfter(r.version, before.version) || !had && !isNew {
		s.mu.Unlock()
		return
	}
	s.byID[r.ID] = r
	if !had {
		s.byName[r.name()] = append(s.byName[r.name()], r.ID)
	}
	s.mu.Unlock()
	s.exports.notify(r.name())
}

// isAfter reports whether a record's version a is another one than b, and not an older one.
func isAfter(a, b account.ResourceVersion) bool { return a.Epoch != b.Epoch || a.Seq > b.Seq }

// drop forgets a record that was deleted, unless it was made again later: with the same id.
func (s *records) drop(r record) {
	s.mu.Lock()
	before, had := s.byID[r.ID]
	if had = had && !isAfter(before.version, r.version); had {
		delete(s.byID, r.ID)
		name := r.name()
		ids := slices.DeleteFunc(s.byName[name], func(other string) bool { return other == r.ID })
		if s.byName[name] = ids; len(ids) == 0 {
			delete(s.byName, name)
		}
	}
	s.mu.Unlock()
	if had {
		s.exports.notify(r.name())
	}
}

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
	options *Options
	records *records
	refresh notify.Signal // refresh asks for a complete list soon.
	logged  string        // logged is the failure that was logged last; only run uses it.
}

// run runs until the context ends, while this replica leads.
func (f *feed) run(ctx context.Context) {
	f.records.reset() // what an earlier run left
	apiclient.Follow(ctx, "the exports of the account", f)
}

// List implements apiclient.Follower.
func (f *feed) List(ctx context.Context) (account.ResourceVersion, error) {
	snapshot, err := f.options.Account.ListEndpoints(ctx, recordsFilter)
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
	return f.options.Watch(ctx, recordsFilter, after)
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
		f.options.Log.Error(err, "The exports of the account cannot be read; it is tried again")
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
		f.options.Log.Info("The exports of the account can be read again")
	}
}

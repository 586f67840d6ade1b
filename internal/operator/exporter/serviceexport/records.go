// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
)

// record is what the account has of an export.
type record struct {
	clusterset.Export
	url      string
	ownerUID string // of the ServiceExport
	version  account.ResourceVersion
}

// recordOf returns the record that an endpoint is.
func recordOf(e *account.Endpoint) (record, bool) {
	export, ok := clusterset.ExportOf(e)
	if !ok {
		return record{}, false
	}
	return record{Export: export, url: e.URL, ownerUID: e.Owner.UID, version: e.ResourceVersion}, true
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

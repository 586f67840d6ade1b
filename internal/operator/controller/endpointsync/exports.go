// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/clusterset"
)

// clustersetRetry is how often a server that did not know account.BindingClusterset is asked for
// it again.
const clustersetRetry = 5 * time.Minute

// exports are what clusters export, by name and by the endpoint's id. They follow the account at
// once, without the delays of ports. Only while they are not known do they stay as they are.
type exports struct {
	byID   map[string]types.NamespacedName
	byName map[types.NamespacedName]map[string]clusterset.Export
	// known reports that the latest list is complete, and from the account that may remove.
	known bool
	// awaiting are names that were asked for while exports were not known.
	awaiting map[types.NamespacedName]struct{}
}

func newExports() exports {
	return exports{byID: map[string]types.NamespacedName{},
		byName:   map[types.NamespacedName]map[string]clusterset.Export{},
		awaiting: map[types.NamespacedName]struct{}{}}
}

// Exports returns what clusters export under the name, oldest first. While known is false (before
// the first complete list, while removals are frozen, or at a server that does not know exports),
// nothing that was made of exports may change; when that ends, a Change names all that were asked
// for. A Set that is disabled, or without SetOptions.Clusterset, has no exports.
func (s *Set) Exports(name types.NamespacedName) (all []clusterset.Export, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disabled {
		return nil, true
	}
	if !s.exports.known {
		s.exports.awaiting[name] = struct{}{}
	}
	all = slices.SortedFunc(maps.Values(s.exports.byName[name]), func(a, b clusterset.Export) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, s.exports.known
}

// ExportedNames returns the names with exports, in no order. As Exports, it says nothing about
// others while exports are not known.
func (s *Set) ExportedNames() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.disabled {
		return nil
	}
	return slices.Collect(maps.Keys(s.exports.byName))
}

// replaceExports makes the exports those of byID, which a complete list has just replaced. mu must
// be held.
func (s *Set) replaceExports(c *Change) {
	x := &s.exports
	if s.removals.source.frozen || s.withoutClusterset {
		x.known = false
		return
	}
	for id := range maps.Clone(x.byID) {
		if e := s.byID[id]; e == nil || e.export == nil {
			x.remove(id, c)
		}
	}
	for _, e := range s.byID {
		if e.export != nil {
			x.put(*e.export, c)
		}
	}
	if !x.known {
		c.Exports = slices.AppendSeq(c.Exports, maps.Keys(x.awaiting))
		clear(x.awaiting)
		x.known = true
	}
}

// apply applies an event: the endpoint with the id is that export, or none (nil). While exports are
// not known, the next complete list does.
func (x *exports) apply(id string, export *clusterset.Export, c *Change) {
	switch {
	case !x.known:
	case export == nil:
		x.remove(id, c)
	default:
		x.put(*export, c)
	}
}

func (x *exports) put(e clusterset.Export, c *Change) {
	name := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
	if old, ok := x.byID[e.ID]; ok && old != name {
		x.remove(e.ID, c)
	}
	if old, ok := x.byName[name][e.ID]; ok && reflect.DeepEqual(old, e) {
		return
	}
	if x.byName[name] == nil {
		x.byName[name] = map[string]clusterset.Export{}
	}
	x.byID[e.ID], x.byName[name][e.ID] = name, e
	c.Exports = append(c.Exports, name)
}

// remove removes the export of the endpoint with the id, if there is one.
func (x *exports) remove(id string, c *Change) {
	name, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	delete(x.byName[name], id)
	if len(x.byName[name]) == 0 {
		delete(x.byName, name)
	}
	c.Exports = append(c.Exports, name)
}

// setWithoutClusterset records whether a list that begins to be applied lacks the endpoints of
// account.BindingClusterset. Those that are known stay until a list has them. mu must be held.
func (s *Set) setWithoutClusterset(without bool, now time.Time, c *Change) {
	without = without && s.clusterset
	if s.withoutClusterset != without {
		for hostname := range s.removals.hosts {
			if isClustersetHostname(hostname) {
				c.Hostnames = append(c.Hostnames, hostname) // whether its ports may be removed changes
			}
		}
	}
	s.withoutClusterset, s.listAgainAt = without, time.Time{}
	if without {
		s.listAgainAt = now.Add(clustersetRetry)
	}
}

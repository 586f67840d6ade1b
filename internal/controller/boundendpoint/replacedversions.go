// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"sync"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// replaced remembers the versions of objects that the last write of each status replaced. A write
// of what the cache still has then would only be refused. It is safe for concurrent use.
type replaced struct {
	mu       sync.Mutex
	versions map[string]string // hostname -> resourceVersion
}

func newReplaced() *replaced { return &replaced{versions: map[string]string{}} }

// add remembers that a write made after of before.
func (r *replaced) add(before, after *v1alpha1.BoundEndpoint) {
	if before.ResourceVersion == after.ResourceVersion {
		return // it was no difference to the API server
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[before.Name] = before.ResourceVersion
}

// has reports whether the object is as it was before the last write of its status.
func (r *replaced) has(b *v1alpha1.BoundEndpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions[b.Name] == b.ResourceVersion
}

func (r *replaced) forget(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.versions, hostname)
}

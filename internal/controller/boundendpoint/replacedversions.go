// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"sync"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// replacedVersions remembers the versions of objects that the last write of each status replaced. A write
// of what the cache still has then would only be refused. It is safe for concurrent use.
type replacedVersions struct {
	mu       sync.Mutex
	versions map[string]string // hostname -> resourceVersion
}

func newReplacedVersions() *replacedVersions { return &replacedVersions{versions: map[string]string{}} }

// record remembers that a write made after of before.
func (r *replacedVersions) record(before, after *v1alpha1.BoundEndpoint) {
	if before.ResourceVersion == after.ResourceVersion {
		return // it was no difference to the API server
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[before.Name] = before.ResourceVersion
}

// contains reports whether the object is as it was before the last write of its status.
func (r *replacedVersions) contains(b *v1alpha1.BoundEndpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions[b.Name] == b.ResourceVersion
}

func (r *replacedVersions) forget(hostname string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.versions, hostname)
}

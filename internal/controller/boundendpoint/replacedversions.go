// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"sync"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// replacedVersions records, for each hostname, the resourceVersion that the last status write
// replaced. A write based on a cached object of that version would be a conflict. It is safe for
// concurrent use.
type replacedVersions struct {
	mu       sync.Mutex
	versions map[string]string // hostname -> resourceVersion
}

func newReplacedVersions() *replacedVersions { return &replacedVersions{versions: map[string]string{}} }

// record records that a write replaced before by after.
func (r *replacedVersions) record(before, after *v1alpha1.BoundEndpoint) {
	if before.ResourceVersion == after.ResourceVersion {
		return // the API server saw no difference
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[before.Name] = before.ResourceVersion
}

// contains reports whether the object has the version that the last write replaced.
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

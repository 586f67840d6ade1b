// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import "github.com/fairlead-dev/fairlead/api/v1alpha1"

// recordReplaced records the version that a status write replaced.
func (r *Reconciler) recordReplaced(before, after *v1alpha1.BoundEndpoint) {
	if before.ResourceVersion != after.ResourceVersion { // else the API server saw no difference
		r.replacedVersions.Store(before.Name, before.ResourceVersion)
	}
}

// isReplaced reports whether the object has the version that the last status write replaced: the
// cache is stale, and another write would be a conflict.
func (r *Reconciler) isReplaced(b *v1alpha1.BoundEndpoint) bool {
	version, _ := r.replacedVersions.Load(b.Name)
	return version == b.ResourceVersion
}

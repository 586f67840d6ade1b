// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import "golang.org/x/net/publicsuffix"

// isTopLevelDomain reports whether a namespace is named like a top-level domain of the public
// suffix list. A pod's resolver tries the cluster's domains first, so that a lookup of example.com
// finds Service example of namespace com. The domain prod is excluded: names in it cannot be
// registered, and namespaces often have this name.
func isTopLevelDomain(namespace string) bool {
	if namespace == "prod" {
		return false
	}
	suffix, icann := publicsuffix.PublicSuffix(namespace)
	return icann && suffix == namespace
}

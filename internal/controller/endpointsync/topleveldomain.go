// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import "golang.org/x/net/publicsuffix"

// isTopLevelDomain says whether a namespace is named like a top-level domain of the internet, as the
// public suffix list has them. A pod's resolver tries the cluster's domains first, so that a lookup
// of example.com finds Service example of namespace com. The domain prod is one, too, but nobody
// can register a name in it, and namespaces are often called so.
func isTopLevelDomain(namespace string) bool {
	if namespace == "prod" {
		return false
	}
	suffix, icann := publicsuffix.PublicSuffix(namespace)
	return icann && suffix == namespace
}

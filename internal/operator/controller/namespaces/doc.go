// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespaces decides which namespaces get Services, and reads Services if the manager has
// rights in listed namespaces only.
//
// internal/operator makes a Policy of the values of binding.namespaces, which
// internal/operator/controller/boundendpoint asks before it writes. Without a list, one informer of
// internal/operator's cache holds the Services of all namespaces. With a list, no cluster-wide
// object is read: Informers runs one independent informer for each listed namespace, so that one
// without rights neither blocks nor delays another, and passes their events to boundendpoint's
// controller. UninstallCleanup deletes the target Services when the operator's own namespace is
// deleted, as the garbage collector cannot.
package namespaces

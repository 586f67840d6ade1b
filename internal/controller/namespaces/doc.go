// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespaces owns which namespaces get Services, and the reading of Services where the
// manager has rights in listed namespaces only.
//
// The values of binding.namespaces come in as a Policy, from internal/operator.
// internal/controller/boundendpoint asks the Policy before it writes. Without a list one informer
// of internal/operator's cache holds the Services of all namespaces. With a list nothing of the
// cluster's is read: Informers runs one informer per listed namespace, each on its own, so that one
// without rights neither blocks nor delays another, and hands their events to boundendpoint's
// controller; UninstallCleanup removes what the garbage collector could not when the operator's own
// namespace goes.
package namespaces

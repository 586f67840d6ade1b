// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults owns the proof that the manager keeps its promises when the cluster does not keep
// its own: it runs the manager as assembled by internal/operator against a real API server, through
// a transport that fails, lies, delays and kills, and checks after every fault that no foreign
// Service was touched, that what is projected is what the account has, that target ports are unique
// and the Services agree with them, and that nothing of ours is without an endpoint. Tests only.
package faults

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package bench

// concurrent is how many short connections there are at a time: what a forwarder opens within its
// four seconds while the race detector looks on.
const concurrent = 50

// usualMiB is how much goes there and back to be compared.
const usualMiB = 64

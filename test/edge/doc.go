// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package edge tests the service's edge over real tunnels: requests and connections that enter
// through a forwarder or the public listeners, and leave through an agent, a backend or a policy.
// It owns the tests of how these parts behave together; each part alone is tested in its own
// package. What comes in: a whole service in this process, of test/support/servicetest.
package edge

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent tests the agent's library with a real service: sets of endpoints that change while
// they are served, many endpoints, refusals, shutdowns. It owns the tests of how agent and service
// behave together; what the agent does alone is tested in internal/agent. What comes in: a whole
// service in this process, of test/support/servicetest.
package agent

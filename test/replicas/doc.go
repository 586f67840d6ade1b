// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas tests several fairlead-server processes that are active on one PostgreSQL, with
// agents, forwarders and browsers that reach them through a load balancer.
//
// Tests come in with a rig: processes with data directories of their own on 127.0.0.1 to 127.0.0.3,
// a throwaway PostgreSQL, a balancer that polls the readiness of the processes and whose links can
// be cut, delayed and black-holed, agents and forwarders in the test's process, and a load of
// requests that records each failure. The programs are built by the tests; everything ends with
// them.
package replicas

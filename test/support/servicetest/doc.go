// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servicetest runs a whole service in a test's process, with the agents, forwarders and
// browsers that use it.
//
// Start runs a service on ports of its own, StartPublic one with a public edge; a Server starts
// agents and forwarders, and a Path is all of these with one endpoint. Every function ends the test
// when it fails, and all that it starts ends with the test. It is used by the tests of
// internal/service, test/edge and test/grpc.
package servicetest

import "go.uber.org/goleak"

// Main runs a package's tests, and fails when goroutines are left after them. m is a *testing.M, or
// one that ends more than the tests.
func Main(m goleak.TestingM) {
	// net/http gives a client that it has refused half a second to read why, even after the server
	// is closed: longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

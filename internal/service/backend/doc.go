// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backend chooses the leaf of a backend that serves a connection, and connects safely to
// addresses that tenants configure.
//
// What comes in: an account's backend, by id, for each connection or request, and the result of
// every attempt. What it keeps: the trees of backends in use, and for each child of a failover or
// weighted backend whether it is up, learnt from live connections alone; there are no health
// checks. Whom it hands over to: the caller, who gets one leaf after the other (a tunnel group, a
// static address, an answer) until one serves, and who does all connecting: to static addresses
// through Guard, which checks each address at the moment of the connect.
package backend

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backend owns the choice of who serves a connection that goes to a backend, and the one
// way of connecting to addresses that tenants name.
//
// What comes in: an account's backend, by id, for each connection or request, and what became of
// every attempt. What it keeps: the trees of backends in use, and for each child of a failover or
// weighted backend whether it is up, learnt from live connections alone; nothing here connects to
// find out. Whom it hands over to: the caller, who gets one leaf after the other (a tunnel group, a
// static address, an answer) until one serves, and who does all connecting: to static addresses
// through the Guard, which judges each address at the moment of the connect.
package backend

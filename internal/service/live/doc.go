// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live tracks the requests that are being served for people's sessions, so that they can be
// aborted the moment a session ends.
//
// What comes in: requests, from a login action, in this order. Abortable wraps a request; Register
// adds it to the Registry, and only then is its session read; SetSession names the session, or
// reports that it was ended meanwhile; the request is served; Done. Code that ends a session writes
// that to the store first and then calls Abort. So a request either finds its session gone, or
// SetSession returns false, or it is aborted. With replicas there is a lease, too: while it is not
// valid nothing is passed on, and Run aborts what is idle.
//
// What goes out: nothing. An abort ends the request's context, makes its writer refuse everything,
// ends reads and writes that wait, and resets the client's connection where it carries no other
// request. Besides, all that is passed on for a request, from the client and to it, an upgraded
// connection's bytes included, asks guard.mayServe first, at least every 64 KiB: bytes that an abort
// has not reached stop there.
package live

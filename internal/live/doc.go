// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live owns what is being served for people's sessions, so that it can be cut the moment a
// session ends.
//
// What comes in: requests, as a login action gets them, in this order. Guard makes a request that
// can be cut; Enter makes it known to the Registry, and only then its session is read; Is names the
// session, or says that it was cut meanwhile; the request is served; Leave. Whoever ends a session
// writes that to the store first and then calls Cut. So a request either finds its session gone, or
// is told so by Is, or is cut.
//
// Where to: nowhere. What a cut does is Guard's: the request's context ends, its writer takes
// nothing more, reads and writes that wait end, and the client's connection is closed hard where it
// carries nothing else.
package live

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mux carries many streams over one connection. It speaks the yamux protocol (version 0 of
// hashicorp/yamux' specification, with the error code of a reset in the length of its window
// update, as libp2p/go-yamux v5 has it), so that either end may be another implementation.
//
// What comes in: a connection, from internal/tunnel, which says over what and how it is counted.
// What goes out: streams, of both sides, to internal/tunnel.
//
// It exists for what it does not do. A frame is not copied to be sent, and not handed to another
// goroutine: whoever writes to a stream writes to the connection, if nobody else is just doing so;
// else small frames are left to whoever is, together, and large ones take turns, so that no stream
// waits for more than one frame of each other. What has arrived is lent to its reader as it came.
//
// The reader of a session never waits for its writer, so two sessions cannot block each other.
package mux

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mux multiplexes streams over one connection. It speaks the yamux protocol (version 0 of
// hashicorp/yamux's specification, with the error code of a reset in the length of its window
// update, as libp2p/go-yamux v5 has it), so either end may be another implementation.
//
// What comes in: a connection, from internal/tunnel. What goes out: streams, opened by either side,
// to internal/tunnel.
//
// It differs from other implementations in that frames are neither copied nor handed to another
// goroutine to be sent: a goroutine that writes to a stream writes to the connection, unless
// another one is writing. Then small frames are appended to a batch that the current writer sends,
// and large frames take turns, so that no stream waits for more than one frame of each other
// stream. Received bytes are lent to their reader without a copy.
//
// The reader of a session never waits for its writer, so two sessions cannot block each other.
package mux

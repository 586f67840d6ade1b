// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect records what the agent's HTTP streams carry, for the person who runs the agent.
//
// Input: internal/agent wraps each stream with Recorder.Tap. The tap copies bytes into a queue
// without a lock and without waiting; what does not fit is dropped and counted. One goroutine of
// the Recorder cuts the queued bytes into exchanges: HTTP/1 with several requests on a connection,
// HTTP/2 streams, the frames of WebSocket, server-sent events and gRPC: ten times a second for a
// subscriber, else twice a second and when a reader asks. Headers are parsed when a reader asks for
// them. Bodies of exchanges that leave the list lend their memory to those that come.
//
// Output: Recorder.List, Get and Subscribe for internal/agent/inspect/page; Server with the JSON
// API under /api and a guard against other origins; Recorder.Replay, which sends a request to the
// upstream again.
//
// The last 500 exchanges or 64 MiB are kept, in memory only, at most 1 MiB of a body. List and Get
// return true values: what shows them masks them (Mask).
package inspect

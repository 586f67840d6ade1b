// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent runs beside an upstream: it keeps a session with the service, binds endpoints and
// labelled tunnels, and serves the streams that the service opens by dialling their upstreams and
// relaying bytes. It parses no HTTP; with Options.Inspect, internal/agent/inspect gets a copy of
// the bytes and does, later and for display only.
//
// Input: Options from cmd/fairlead. internal/tunnel carries the session and reconnects,
// internal/tunnel/relay joins each stream with its upstream connection, and Options.Observer
// receives every Event, for internal/agent/screen to show.
//
// An endpoint keeps its id across reconnects: each bind presents the resume secret of the previous
// bind, which is kept in memory only.
//
// The endpoints may change while the agent runs (Agent.Set). Each session has a queue of endpoints
// whose bind may differ from that of Set; sync binds or unbinds one of them until they agree. A
// refused endpoint affects no other, and its streams are served as it was bound last.
package agent

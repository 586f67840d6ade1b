// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent owns what runs beside an upstream: it keeps a session with the service, binds
// endpoints and labelled tunnels, and serves the streams that the service opens by dialling their
// upstreams and relaying bytes. It parses no HTTP.
//
// What comes in: Options from cmd/fairlead. Whom it hands over to: internal/tunnel carries the
// session and reconnects, internal/relay joins each stream with its upstream connection, and
// Options.Observe receives every Event, for internal/agent/screen to show.
//
// An endpoint keeps its id across reconnects: each bind presents the resume secret of the bind
// before, which lives in memory only.
package agent

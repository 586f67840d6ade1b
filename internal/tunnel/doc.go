// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel is the session protocol between the service and the programs that dial it:
// agents and forwarders. docs/reference/protocol describes the wire format.
//
// What comes in: a TLS connection on the server's side (Server.ServeConn), an address and a Hello
// on the client's (Client.Run). What it hands over to: the Handler on the server's side, which is
// internal/service/tunnelserver; OnUp and OnStream on the client's, which are internal/agent and
// internal/operator/forwarder. Streams are net.Conns, which internal/tunnel/relay joins with the
// next hop.
//
// The flow:
//
//	client                                  server
//	  | TCP, TLS 1.3, ALPN fairlead/1          |
//	  | ---- yamux stream 1: control --------- |
//	  | hello {role, token, ...}            -> |  Handler.Hello: who is it?
//	  |                                        |  Handler.Up
//	  | <- welcome {session id, join secret}   |  or error {code}: a final code ends the client
//	  | bind {url, ...}                     -> |  Handler.Bind (agents)
//	  | <- bound {endpoint id, ...}            |
//	  |                                        |
//	  | a second connection:                   |
//	  | hello {session id, join secret}     -> |  joins the session; new streams go to the idler connection
//	  |                                        |
//	  | either side opens streams:             |
//	  | header, then bytes at once          -> |  the header names the endpoint; no answer is awaited
//	  | <- OPENED, bytes   or   reset {code}   |  RefusedError: nothing was done with the bytes
//	  | FIN: CloseWrite, reset: everything that is not an ordinary end
//	  |                                        |
//	  | <- drain / stop {code}                 |  reconnect while live streams finish / leave
//	  | <- bye ->                              |  last on a connection: what was written has arrived, hang up
//
// With several servers behind the address (replicas), a session has connections with some of them
// (Session.Legs); each has a Session with the same id and its own connections. Handler.Join admits a
// session that another replica began, and a drain is about one replica.
//
// A session ends with its last connection, and Handler.Down follows its last Bind or Unbind. The
// client dials lost connections of a live session again. Every wait for a peer is bounded: 10 s for
// a handshake, a hello, a request, a stream's header; a ping after 15 s of silence that is not
// answered within 30 s ends a connection. While streams wait for the peer, a second without an
// answer to a ping makes it unresponsive, which ends nothing (Session.Unresponsive). Until its
// hello is accepted, a peer may send 20 KiB.
package tunnel

// ALPN is the protocol's name and version in the TLS handshake.
const ALPN = "fairlead/1"

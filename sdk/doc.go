// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sdk makes a Go program a Fairlead endpoint: it runs the agent inside the program, and
// calls the account's API.
//
//	ln, err := sdk.Listen(ctx, "http://api.demo")
//	...
//	http.Serve(ln, mux)
//
// Then every pod of the account's clusters can call http://api.demo. [Listen] serves connections
// in this process, [Forward] passes them on to an address, and [NewClient] calls the account's API.
//
// # Settings
//
// Without options the settings are those of the command fairlead, in its order: the environment
// (FAIRLEAD_SERVER_URL, FAIRLEAD_AUTHTOKEN, FAIRLEAD_CA_FILE or FAIRLEAD_CA_SHA256), then its config
// file, which FAIRLEAD_CONFIG names, or fairlead/config.yaml in the user's configuration directory.
// An option has precedence over both. HTTPS_PROXY and NO_PROXY count, too.
//
// # Errors
//
// What the service refuses is an [*Error], for errors.As, with a code of docs/fix/errors.md.
// Everything else, an outage of the service or of the network, is retried.
//
// # What comes in, and whom it hands over to
//
// Calls of other programs come in. internal/agent keeps the session and reconnects,
// internal/agent/agentconfig reads the settings, and internal/apiclient calls the API; no type of
// theirs is in this package's API.
package sdk

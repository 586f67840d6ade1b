// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package account has the nouns of the Fairlead service and their rules: endpoints and their URLs,
// operators, tunnel sessions, API keys and authtokens, the watch's events, and the domain error.
//
// What comes in: values from the API, the tunnel, the CLI and the operator. Whom it hands over to:
// internal/service/store persists these nouns, internal/service/apiserver and internal/apiclient
// carry them over HTTP in the JSON shape that the field tags give, internal/service/tunnelserver
// and internal/edge act on them. They meet at the interfaces of this package.
//
// The package imports only the standard library, and nothing of Fairlead.
package account

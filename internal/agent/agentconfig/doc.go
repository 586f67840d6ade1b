// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentconfig reads the settings of the fairlead command: the server's address, the
// authtoken, the API key, the authorities to trust, and the endpoints of the config file. Load
// resolves flags, environment and the YAML config file in this order of precedence. cmd/fairlead
// passes the Settings, which know the source of each value, to internal/agent and internal/trust.
// Save changes the file atomically and keeps its other content. AcquireInstance keeps the random id
// of this installation in a file of its own.
//
// No secret appears in an error or a warning of this package.
package agentconfig

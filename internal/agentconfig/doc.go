// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentconfig owns the settings that the fairlead command finds on a person's machine: the
// server's address, the authtoken and whom to trust. Flags, environment and the YAML config file
// come in, and Load resolves them in that order of precedence; Settings with the source of each
// value go out to cmd/fairlead, which hands them over to internal/agent and internal/trust. Save
// changes the file atomically and keeps what else is in it. AcquireInstance owns the other file on
// that machine: the random name of this installation.
//
// No secret appears in an error or a warning of this package.
package agentconfig

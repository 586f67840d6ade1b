// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator is the assembly of fairlead-operator: the one list of what the manager runs, and
// of what the forwarder runs.
//
// Options come in from cmd/fairlead-operator. RunManager constructs and wires internal/apiclient,
// internal/selector and the controllers under internal/controller; RunForwarder wires
// internal/forwarder. The manager decides and writes, the forwarder only carries traffic: each
// runs, restarts and fails without the other.
package operator

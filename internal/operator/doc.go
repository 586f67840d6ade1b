// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator assembles fairlead-operator: the manager and the forwarder.
//
// Options come in from cmd/fairlead-operator. RunManager constructs and connects
// internal/apiclient, internal/selector and the controllers under internal/operator/controller;
// RunForwarder connects internal/operator/forwarder. The manager decides and writes, the forwarder
// only carries traffic: each runs, restarts and fails without the other.
package operator

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package federation tests an installation without secrets: manager, forwarder and exporter present
// tokens that a real API server issues for their ServiceAccounts, and the service checks them with
// that cluster's keys. What comes in is a control plane of test/support/testenv and a service of
// test/support/servicetest; it exports nothing.
package federation

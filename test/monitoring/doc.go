// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the Prometheus rules of docs/prometheus and the Grafana dashboards of
// docs/grafana: that the rules fire on the series that they are for, that every metric which a rule
// or a panel names is one of a running program, and that alerts, runbooks and the charts' copies
// belong together.
package monitoring

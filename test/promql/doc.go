// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promql parses the rules of docs/prometheus and the expressions of the dashboards of
// docs/grafana as the current Prometheus does. It is a module of its own, so that the product does
// not depend on Prometheus; test/monitoring has the tests that need only promtool.
package promql

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpkit owns what the account API and the dashboard share in serving HTTP: their
// common options, the call with its operation ID, the response recorder, recovery from panics,
// the log line of each request, bodies of limited size and time, answers that stay open, and the
// limit of such answers.
//
// What comes in: requests that a route has accepted. Whom it hands over to: the handler that the
// route names; internal/service/apiserver and internal/service/dashboard decide who may call it.
package httpkit

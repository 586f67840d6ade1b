// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projectionlatency measures how long a new URL of the account waits for its Services: from
// the watch's event in the manager until both Services exist.
//
// What comes in: new URLs from internal/operator/controller/endpointsync, and what became of them
// from internal/operator/controller/boundendpoint. What goes out: metrics. A URL for which no
// Services can be made, for a reason that is not the manager's, such as a missing namespace, is not
// measured.
package projectionlatency

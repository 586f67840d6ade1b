// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login serves login actions of traffic policies: the paths below /_fairlead/, the cookies
// of flows and sessions, the redirect to an identity provider and its response, and the session
// check of every later request.
//
// What comes in: requests at a login action, from internal/trafficpolicy, and providers, which the
// packages below this one make: they speak the protocols and have nothing to do with browsers. It
// hands over to account.Logins, which stores sessions, and to internal/service/live, which lists
// the requests that are served for them. A request with a session continues with the rest of its
// policy, with headers that identify the person.
package login

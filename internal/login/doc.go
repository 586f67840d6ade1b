// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login owns what happens at a login action of a traffic policy: the paths below
// /_fairlead/, the cookies of flows and sessions, the way to an identity provider and back, and the
// look at the session that every later request takes.
//
// What comes in: requests that have come to a login action, from internal/trafficpolicy, and
// providers, which the packages below this one make: they know the protocols and no browser. Whom
// it hands over to: account.Logins keeps sessions, internal/live knows what is being served for
// them, and a request that is let in goes on to the rest of its policy with the headers that name
// the person.
package login

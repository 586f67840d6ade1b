// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard owns the pages that people see under /ui/ of the API's listener: signing in
// with an API key, what an account has, what is wrong with it, and what one does by hand: revoke an
// identity, stop an agent, make and delete keys, make, change and delete cloud endpoints with their
// traffic policies, and backends.
//
// What comes in: HTTP requests of browsers. Whom it hands over to: the interfaces of
// internal/account, which it knows nothing of but their methods.
//
// Every page is one GET that changes nothing, and every action one POST of a plain form, answered
// with a redirect. Scripts only spare people the way: they show the page of a confirmation as a
// dialog, send the search while it is typed, and read the page again when something has changed.
// What people change, an editor shows as a form, then the difference, and where another has saved
// first both differences.
//
// routes.go lists every path with its handler, which is a method of the type of its subject, in the
// file of that noun; the handler names the template in templates/ that it fills. What pages look like
// is in static/.
package dashboard

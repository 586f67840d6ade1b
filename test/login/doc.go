// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login tests logins end to end: a whole service with its public edge, agents, the identity
// providers of test/idp, and browsers, a small one over HTTP and Chromium. It owns the tests of
// their interaction; each part alone is tested in its own package. What comes in: the program of
// test/idp, named by FAIRLEAD_IDP, and Chromium. It hands over to no other package.
package login

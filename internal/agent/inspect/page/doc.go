// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package page owns the pages of the agent's inspector: the list of the requests that an agent has
// served, one request with its headers, bodies and frames, the form that replays it, and its export
// as HAR or as a curl command.
//
// What comes in: HTTP requests of a browser on the same machine, which package inspect has checked
// for their host and origin. Whom it hands over to: the recorder of package inspect, through an
// interface.
//
// Every page can be read without a script. Scripts keep the list up to date by server-sent events,
// and add keys. What was recorded is a stranger's: templates escape all of it, invisible characters
// included, the Content-Security-Policy lets nothing of it run, and decoding is bounded. Values of
// secret headers are masked, in bodies too, until a form with the page's token asks for them.
package page

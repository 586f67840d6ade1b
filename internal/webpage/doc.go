// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webpage owns what the service's dashboard and the agent's inspector have alike as web
// pages: the security headers, the theme, static files under names that change with their content,
// and templates that are executed as a whole before anything is sent.
//
// What comes in: the static files and templates of a caller, and the data of a page. Whom it hands
// over to: the browser.
package webpage

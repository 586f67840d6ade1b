// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver owns the account API over HTTP: routes, the order of checks, scopes, limits,
// paging, the watch and the OpenAPI document.
//
// What comes in: HTTP requests with an API key, below the root of one listener. Whom it hands over
// to: the interfaces of internal/account. There is one file per resource; docs/reference/api
// describes the API to its clients.
package apiserver

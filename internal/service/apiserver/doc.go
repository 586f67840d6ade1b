// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver owns the account API over HTTP: the handlers of the operations that
// internal/account/resource describes, the order of checks, paging, the watch and the OpenAPI
// document.
//
// What comes in: HTTP requests with an API key, below the root of one listener. Whom it hands over
// to: the interfaces of internal/account. There is one file per resource; docs/reference/api
// describes the API to its clients.
package apiserver

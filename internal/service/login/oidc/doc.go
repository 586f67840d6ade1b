// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oidc implements logins with identity providers that speak OpenID Connect or OAuth 2.0:
// the actions openid-connect and oauth.
//
// What comes in: the config of an action, the guarded HTTP client, and from internal/service/login
// the flows to start and the callbacks that end them. It hands the authentication over to
// internal/service/login. It has nothing to do with browsers, cookies and sessions.
package oidc

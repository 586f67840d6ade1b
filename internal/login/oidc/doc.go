// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oidc owns how identity providers that speak OpenID Connect or OAuth 2.0 confirm a login:
// the actions openid-connect and oauth.
//
// What comes in: the config of an action, the guarded client, and from internal/login the flows
// that begin and the callbacks that end them. Whom it hands over to: internal/login gets what is
// confirmed. It knows no browser, no cookie and no session.
package oidc

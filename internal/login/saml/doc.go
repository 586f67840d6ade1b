// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package saml owns SAML 2.0 in the part of a service provider: what an identity provider's
// metadata says, the AuthnRequest that a browser carries there, our own metadata, and the check of
// the response that the browser posts back.
//
// What comes in: the config of a saml action, and posts from anybody at all. A response is read in
// four steps, each of which only sees what the one before it let through: bytes that hold nothing
// but plain elements (document.go), the shape that a response must have (shape.go), the signature
// (signature.go), and what the signed assertion says (assertion.go). Everything that is used
// afterwards comes from what the signature covers. Whom it hands over to: package login, which
// knows the flow, lets every assertion be used once, and makes the session.
//
// Not offered, and refused with a sentence: encrypted assertions, signed requests, ECDSA keys, the
// artifact and POST bindings towards the identity provider, single logout, transient name ids.
package saml

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package saml implements the service provider's side of SAML 2.0: an identity provider's metadata,
// the AuthnRequest that a browser brings there, our own metadata, and the check of the response
// that the browser posts back.
//
// What comes in: the config of a saml action, and posts, which need no session. A response is read
// in four steps, each of which only sees what the one before it accepted: bytes of nothing
// but plain elements (xml.go), the structure of a response (response.go), the signature
// (signature.go), and the content of the signed assertion (assertion.go). Everything that is used
// afterwards is covered by the signature. It hands over to package login, which knows the flow,
// lets every assertion be used once, and makes the session.
//
// Not supported, and refused with a message: encrypted assertions, signed requests, ECDSA keys, the
// artifact and POST bindings towards the identity provider, single logout, transient name ids.
package saml

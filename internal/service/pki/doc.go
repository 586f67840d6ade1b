// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificate that fairlead-server presents: its own certificate authority
// and a short-lived leaf of it, or a pair of files that the operator of the service supplies. The
// authority lies in the data directory, or, sealed, in a store that servers share.
//
// What comes in: the directory, the store and the names under which clients reach the service, or
// the two files. What goes out: a certificate for crypto/tls that may be swapped at any moment, and
// the CA with its fingerprint for people who have to trust it. A renewal that fails leaves the old
// certificate in service.
package pki

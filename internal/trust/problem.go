// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Problem is the reason why a server's identity could not be verified. Retrying does not help: a
// setting here or the certificate there must be changed.
type Problem string

// The problems. NoProblem means that an error has another reason, such as the network.
const (
	NoProblem        Problem = ""
	UnknownAuthority Problem = "UnknownAuthority" // signed by an authority that is not trusted
	WrongPin         Problem = "WrongPin"         // no authority with the pinned fingerprint
	WrongHost        Problem = "WrongHost"        // the certificate is for other names
	OutOfDate        Problem = "OutOfDate"        // expired, or not valid yet according to this machine's clock
	BadCertificate   Problem = "BadCertificate"   // any other error in the chain
)

// ProblemOf returns the Problem that a TLS handshake error means, or NoProblem.
func ProblemOf(err error) Problem {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, ErrPin):
		return WrongPin
	case errors.As(err, new(x509.HostnameError)):
		return WrongHost
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return OutOfDate
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return UnknownAuthority
	case errors.As(err, &invalid), errors.As(err, new(*tls.CertificateVerificationError)):
		return BadCertificate
	}
	return NoProblem
}

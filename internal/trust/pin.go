// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"
)

// Pin is the SHA-256 of a certificate's SubjectPublicKeyInfo. The zero value is none.
type Pin [sha256.Size]byte

// ParsePin reads a fingerprint of 64 hex digits; colons and case do not matter. ok is false for
// anything else.
func ParsePin(text string) (pin Pin, ok bool) {
	sum, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(text), ":", ""))
	if err != nil || len(sum) != sha256.Size {
		return Pin{}, false
	}
	return Pin(sum), true
}

// VerifyServer verifies a server whose own key is pinned, or that of an authority in its chain: by
// its dates and by its name, which is host for a state that names none: an IP address. A pinned
// certificate without any name is accepted for every name, as there is none to compare.
func (p Pin) VerifyServer(cs tls.ConnectionState, host string) error {
	if len(cs.PeerCertificates) == 0 || sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo) != p {
		return verify(cs, host, x509.NewCertPool(), p[:])
	}
	leaf, roots := cs.PeerCertificates[0], x509.NewCertPool()
	roots.AddCert(leaf)
	options := x509.VerifyOptions{Roots: roots}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) > 0 {
		options.DNSName = cmp.Or(cs.ServerName, host)
	}
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Errorf("verifying server: %w", err)
	}
	return nil
}

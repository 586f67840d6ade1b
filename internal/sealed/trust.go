// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Mode says whether connections to an endpoint are sealed.
type Mode string

// The modes, from the loosest to the strictest.
const (
	Off     Mode = "Off"
	Prefer  Mode = "Prefer"  // unless the agent has no key, and as long as the endpoint never was sealed
	Require Mode = "Require" // or refused
)

// TrustOptions say whose certificate may answer for an endpoint. Without Authorities and Keys the
// first key that is seen is trusted.
type TrustOptions struct {
	Mode        Mode
	Account     string              // id of the account, never what the service says
	Authorities []*x509.Certificate // roots of the account's owner
	Keys        []trust.Pin         // agents' public keys
}

const keyPrefix = "sha256/"

// ParseKey reads the fingerprint of a public key: sha256/ and the base64 of the SHA-256 of its
// SubjectPublicKeyInfo, as in RFC 7469.
func ParseKey(text string) (trust.Pin, error) {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, keyPrefix))
	if err != nil || len(sum) != sha256.Size || !strings.HasPrefix(text, keyPrefix) {
		return trust.Pin{}, fmt.Errorf("%q is no key: it is %sBASE64, as the agent and fairlead seal status print it",
			text, keyPrefix)
	}
	return trust.Pin(sum), nil
}

// FormatKey returns the text that ParseKey reads.
func FormatKey(p trust.Pin) string { return keyPrefix + base64.StdEncoding.EncodeToString(p[:]) }

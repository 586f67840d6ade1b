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

// keyOf returns the fingerprint of a certificate's public key.
func keyOf(c *x509.Certificate) trust.Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

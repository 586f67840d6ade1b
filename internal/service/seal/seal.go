// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seal has the server's secret key: what it encrypts at rest, and the digests and further
// keys that only the key can make.
//
// What comes in: the file that holds the key, which is made if there is none, and texts of
// internal/service/store and internal/service. What goes out: sealed bytes, which the caller
// stores.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// KeySize is the size of a secret key in bytes.
const KeySize = 32

// format is the first byte of what Seal returns.
const format = 1

// RedactionPrefix begins what RedactionMark returns.
const RedactionPrefix = "redacted:"

// Key is a secret key. It is safe for concurrent use.
type Key struct {
	aead                 cipher.AEAD
	mark, digest, derive []byte
}

// New makes a Key of KeySize random bytes.
func New(raw []byte) (*Key, error) {
	if len(raw) != KeySize {
		return nil, fmt.Errorf("a secret key has %d bytes, not %d", KeySize, len(raw))
	}
	var parts [4][]byte
	for i, purpose := range []string{"seal", "mark", "digest", "derive"} {
		part, err := hkdf.Key(sha256.New, raw, nil, "fairlead "+purpose, KeySize)
		if err != nil {
			return nil, fmt.Errorf("deriving keys: %w", err)
		}
		parts[i] = part
	}
	block, err := aes.NewCipher(parts[0])
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block) // the nonce is the first 12 bytes of what it seals
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return &Key{aead: aead, mark: parts[1], digest: parts[2], derive: parts[3]}, nil
}

// Seal encrypts a text (AES-256-GCM). Only Unseal with the same owner, such as the id of the row
// that it belongs to, reads it again. Two calls never return the same bytes.
func (k *Key) Seal(text, owner string) []byte {
	out := make([]byte, 1, 1+len(text)+k.aead.Overhead())
	out[0] = format
	return k.aead.Seal(out, nil, []byte(text), []byte(owner))
}

// ErrSealed reports that bytes were not sealed with this key for this owner.
var ErrSealed = errors.New("the secret key does not open it: it was sealed with another one, or is damaged")

// Unseal returns what was sealed; ErrSealed for anything else.
func (k *Key) Unseal(sealed []byte, owner string) (string, error) {
	if len(sealed) == 0 || sealed[0] != format {
		return "", ErrSealed
	}
	text, err := k.aead.Open(nil, nil, sealed[1:], []byte(owner))
	if err != nil {
		return "", ErrSealed
	}
	return string(text), nil
}

// RedactionMark returns the text that is shown in place of a secret: RedactionPrefix and 8
// hexadecimal digits, the same for the same owner and secret.
func (k *Key) RedactionMark(owner, secret string) string {
	return RedactionPrefix + keyed(k.mark, owner+"\x00"+secret)[:8]
}

// Digest returns 64 hexadecimal digits, the same for the same text, of which nothing can be guessed
// without the key. That of "" is "".
func (k *Key) Digest(text string) string {
	if text == "" {
		return ""
	}
	return keyed(k.digest, text)
}

// Derive returns a key for one purpose. From the key for one purpose, that for another cannot be
// found, nor the secret key.
func (k *Key) Derive(purpose string) [KeySize]byte { return [KeySize]byte(sum(k.derive, purpose)) }

func keyed(key []byte, text string) string { return hex.EncodeToString(sum(key, text)) }

// sum returns KeySize bytes.
func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(text)) // a hash never returns an error
	return mac.Sum(nil)
}

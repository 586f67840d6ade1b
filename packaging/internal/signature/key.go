// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
)

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	maxKeyFile   = 16 << 10 // bytes; a P-256 key has 250
)

// CreateKey writes a new ECDSA P-256 key to file (PKCS #8 in PEM, mode 0600, not encrypted) and its
// public key to file.pub (PKIX in PEM). It overwrites neither.
func CreateKey(file string) error {
	for _, name := range []string{file, file + ".pub"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists; a release key is never overwritten: name another file", name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := createPEM(file, privateBlock, private, 0o600); err != nil {
		return err
	}
	return createPEM(file+".pub", publicBlock, public, 0o644)
}

func createPEM(name, block string, der []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: block, Bytes: der}), f.Close())
}

// CheckKey reports why file cannot sign a release: it is missing, readable by others, or not an
// ECDSA P-256 key.
func CheckKey(file string) error {
	_, err := loadKey(file)
	return err
}

func loadKey(file string) (*keyPair, error) {
	if file == "" {
		return nil, errors.New("no release key: give KEY=file, which `make release-key KEY=file` makes")
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("release key: %w; `make release-key KEY=%s` makes one", err, file)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("release key %s has mode %04o, so that others can read it: run `chmod 600 %s`, "+
			"and make a new key if others may have read it", file, info.Mode().Perm(), file)
	}
	der, err := readPEM(file, privateBlock)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("release key %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("release key %s is not an ECDSA P-256 key; `make release-key` makes one", file)
	}
	return &keyPair{key}, nil
}

func loadPublicKey(file string) (*ecdsa.PublicKey, error) {
	if file == "" {
		return nil, errors.New("no public key: give PUBLIC_KEY=file.pub, from the place where the project publishes it")
	}
	der, err := readPEM(file, publicBlock)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("public key %s is not an ECDSA P-256 key", file)
	}
	return key, nil
}

// readPEM returns the content of file's only PEM block, whose type must be want.
func readPEM(file, want string) ([]byte, error) {
	text, err := readLimited(file, maxKeyFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != want {
		return nil, fmt.Errorf("%s holds no PEM block %q", file, want)
	}
	return block.Bytes, nil
}

// keyPair is a key in the form that Sigstore's signer takes: ECDSA P-256 over SHA-256.
type keyPair struct{ key *ecdsa.PrivateKey }

func (k *keyPair) GetHashAlgorithm() protocommon.HashAlgorithm {
	return protocommon.HashAlgorithm_SHA2_256
}

func (k *keyPair) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	return protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256
}

// GetHint returns the base64 of the SHA-256 of the public key, which cosign writes too.
func (k *keyPair) GetHint() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.key.Public())
	if err != nil {
		return nil // impossible for a P-256 key
	}
	digest := sha256.Sum256(der)
	return []byte(base64.StdEncoding.EncodeToString(digest[:]))
}

func (k *keyPair) GetKeyAlgorithm() string        { return "ECDSA" }
func (k *keyPair) GetPublicKey() crypto.PublicKey { return k.key.Public() }

func (k *keyPair) GetPublicKeyPem() (string, error) {
	der, err := x509.MarshalPKIXPublicKey(k.key.Public())
	return string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der})), err
}

// SignData returns data's signature and its SHA-256.
func (k *keyPair) SignData(_ context.Context, data []byte) (signature, digest []byte, err error) {
	sum := sha256.Sum256(data)
	signature, err = ecdsa.SignASN1(rand.Reader, k.key, sum[:])
	return signature, sum[:], err
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// filePair reloads two files that the administrator replaces. Only Source calls it, from one
// goroutine at a time.
type filePair struct {
	certFile, keyFile     string
	loadedCert, loadedKey []byte // loadedCert and loadedKey are the contents of the current certificate.
}

// next returns current until the files change. A half-replaced pair (the
// certificate is new, the key is not yet) is an error and leaves current in service; the next
// read finds both.
func (f *filePair) next(_ time.Time, current *tls.Certificate) (*tls.Certificate, error) {
	cert, err := os.ReadFile(f.certFile)
	if err != nil {
		return nil, fmt.Errorf("reading --tls-cert: %w", err)
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading --tls-key: %w", err)
	}
	if current != nil && bytes.Equal(cert, f.loadedCert) && bytes.Equal(key, f.loadedKey) {
		return current, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("loading --tls-cert %s and --tls-key %s (PEM, the certificate's chain leaf first, "+
			"and its private key): %w", f.certFile, f.keyFile, err)
	}
	f.loadedCert, f.loadedKey = cert, key
	return &pair, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM key", path)
	}
	key, err := parseKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return key, nil
}

// parseKey parses an ECDSA key, PKCS #8.
func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("found a %T, want an ECDSA key", key)
	}
	return ec, nil
}

// writeFile replaces a file in one step: readers see the old content or the new, whole, also after
// a crash.
func writeFile(path string, data []byte, mode fs.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

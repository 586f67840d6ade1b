// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package grpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// background runs a part of the product until the test ends. The channel has what it returned, if
// that is before.
func background(t *testing.T, run func(context.Context) error) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		ended <- run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return ended
}

// await returns what comes, unless the part of the product that it comes from ends.
func await[T any](t *testing.T, from <-chan T, ended <-chan error) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case err := <-ended:
		t.Fatal("ended:", err)
	case <-time.After(patience):
		t.Fatalf("nothing within %s", patience)
	}
	panic("unreachable")
}

// certificates are a certificate and its key, which is its own authority.
type certificates struct {
	cert, key string // files
	pool      *x509.CertPool
}

func issue(t *testing.T, dir string, names ...string) certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certificates{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), pool: x509.NewCertPool()}
	blocks := map[string]*pem.Block{
		c.cert: {Type: "CERTIFICATE", Bytes: der}, c.key: {Type: "PRIVATE KEY", Bytes: secret},
	}
	for file, block := range blocks {
		text := pem.EncodeToMemory(block)
		c.pool.AppendCertsFromPEM(text) // which finds none in the key
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

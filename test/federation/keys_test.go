// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// nextKey is a key that the cluster publishes and does not sign with yet, nextKeyID the kid that API
// servers derive from it.
var (
	nextKey   *ecdsa.PrivateKey
	nextKeyID string
)

// TestMain runs a control plane that publishes nextKey beside the key that it signs with.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "federation-")
	if err == nil {
		err = writeNextKey(filepath.Join(dir, "next.pem"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := testenv.Run(m, &config, testenv.WithControllers("endpointslice"),
		testenv.WithTokenKeys(filepath.Join(dir, "next.pem")))
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func writeNextKey(file string) (err error) {
	if nextKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(nextKey.Public())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(der)
	nextKeyID = base64.RawURLEncoding.EncodeToString(sum[:])
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
}

// rotateTokens writes tokens that the next key has signed, for the roles.
func (w *world) rotateTokens(roles ...account.SubjectRole) {
	w.Helper()
	for _, role := range roles {
		claims := accounttest.Claims(w.audience(), w.Namespace, accountOf(role), w.serviceAccountUID(role), time.Now())
		claims["iss"] = w.cluster.Issuer
		w.writeToken(role, w.next.Token(w.T, claims))
	}
}

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
	"os"
	"path/filepath"
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

// startCluster runs a control plane that publishes nextKey beside the key that it signs with.
func startCluster() (*testenv.Env, error) {
	dir, err := os.MkdirTemp("", "federation-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if nextKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(nextKey.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	nextKeyID = base64.RawURLEncoding.EncodeToString(sum[:])
	file := filepath.Join(dir, "next.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	return testenv.New(testenv.WithControllers("endpointslice"), testenv.WithTokenKeys(file))
}

// rotateTokens writes tokens that the next key has signed, for the roles.
func (w *world) rotateTokens(roles ...account.SubjectRole) {
	w.Helper()
	for _, role := range roles {
		claims := accounttest.Claims(w.audience(), w.namespace, accountOf(role), w.serviceAccountUID(role), time.Now())
		claims["iss"] = w.cluster.Issuer
		w.writeToken(role, w.next.Token(w.T, claims))
	}
}

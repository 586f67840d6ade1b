// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authority is the owner's side of trust in sealed endpoints. It makes roots, keys and
// requests, signs the certificates of agents and callers, and loads these for TLS. All of it is
// local: the service has no part in it. The fairlead command gives it flags and files; what it signs
// is verified by sealed.Trust.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Lives of certificates; clocks may differ by backdate.
const (
	MinLife  = 24 * time.Hour
	MaxLife  = 30 * 24 * time.Hour
	backdate = 5 * time.Minute
)

// Root is an authority for the endpoints and callers of one account.
type Root struct {
	Certificate *x509.Certificate
	Account     string
	key         crypto.Signer
}

// NewRoot makes a root for an account, and for nothing else: its certificate permits URIs of the
// account alone. It returns the files NAME.key and NAME.crt for ReadRoot.
func NewRoot(accountID, name string, now time.Time) (*x509.Certificate, []File, error) {
	if !account.ValidID(account.PrefixAccount, accountID) {
		return nil, nil, account.Invalid("account", accountID, "must be the id of an account, such as "+
			"ac-06f0l2rj1qg4o3b5e6s7t8u9v0: fairlead status prints it")
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"Fairlead"},
			CommonName: "Seal " + name + now.UTC().Format(" 2006-01-02T15:04Z ") + accountID},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,

		PermittedURIDomains:         []string{accountID},
		PermittedDNSDomainsCritical: true, // It makes the constraint of URIs critical, too.
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a root: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return cert, []File{{name + ".key", keyPEM, Secret}, {name + ".crt", encode("CERTIFICATE", der), Public}}, err
}

// newKey returns a private key, and its PEM form.
func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a private key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return key, encode("PRIVATE KEY", der), err
}

func encode(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

// ReadRoot reads a root from its two files.
func ReadRoot(certFile, keyFile string) (*Root, error) {
	pair, err := loadPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	root := &Root{Certificate: pair.Leaf, Account: RootAccount(pair.Leaf)}
	if root.key, _ = pair.PrivateKey.(crypto.Signer); root.Account == "" || root.key == nil {
		return nil, fmt.Errorf("%s is no root of fairlead seal init, which is for one account", certFile)
	}
	return root, nil
}

// RootAccount returns the account of a root; "" for another certificate.
func RootAccount(c *x509.Certificate) string {
	if c.IsCA && len(c.PermittedURIDomains) == 1 && account.ValidID(account.PrefixAccount, c.PermittedURIDomains[0]) {
		return c.PermittedURIDomains[0]
	}
	return ""
}

// KeyOf returns the fingerprint of the key of a certificate, as sealed.FormatKey writes it.
func KeyOf(c *x509.Certificate) string {
	return sealed.FormatKey(sha256.Sum256(c.RawSubjectPublicKeyInfo))
}

// SignClusters signs clusters for --seal-clusters, until a time has passed.
func (r *Root) SignClusters(all []Cluster, life time.Duration, now time.Time) ([]byte, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: r.key}, nil)
	if err != nil {
		return nil, fmt.Errorf("signing clusters: %w", err)
	}
	text, err := jwt.Signed(signer).Claims(clusters{Clusters: all, Claims: jwt.Claims{IssuedAt: jwt.NewNumericDate(now),
		Expiry: jwt.NewNumericDate(now.Add(life)), Audience: jwt.Audience{clustersFor + r.Account}}}).Serialize()
	if err == nil && len(text) >= maxFile {
		err = fmt.Errorf("the file of %d clusters would have more than the 64 KiB that agents read", len(all))
	}
	return []byte(text + "\n"), err
}

// Sign makes the certificate, PEM, for a PEM file with a request. It has the names of the request, all
// of which have to be allowed; those that are allowed if it asks for none.
func (r *Root) Sign(request []byte, allowed Names, life time.Duration, now time.Time) ([]byte, error) {
	names, public, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	if names.Account == "" {
		names = allowed
	}
	switch end := r.Certificate.NotAfter; {
	case allowed.String() == "":
		return nil, errors.New("nothing is allowed: give --url or --caller")
	case names.Account != r.Account:
		return nil, fmt.Errorf("it is for the account %s, and the root for %s", names.Account, r.Account)
	case !allowed.allow(names):
		return nil, fmt.Errorf("it asks for %s, and allowed is %s", names, allowed)
	case life < MinLife || life > MaxLife:
		return nil, fmt.Errorf("a certificate lives for 24h to 30d, not %v", life)
	case now.After(end):
		return nil, fmt.Errorf("the root has ended on %s: make one with fairlead seal init", end.Format(time.DateOnly))
	}
	usage, title := x509.ExtKeyUsageServerAuth, "Sealed endpoints"
	if names.Caller != "" {
		usage, title = x509.ExtKeyUsageClientAuth, names.Caller
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Fairlead"}, CommonName: title},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
		URIs:                  names.URIs(),
	}, r.Certificate, public, r.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return encode("CERTIFICATE", der), nil
}

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
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

const (
	rootYears = 10
	backdate  = 5 * time.Minute // Clocks may differ by it.
)

// The lives that Sign gives certificates.
const (
	MinLife = 24 * time.Hour
	MaxLife = 30 * 24 * time.Hour
)

// Root is an authority for the endpoints and callers of one account, and for nothing else: its
// certificate permits URIs of the account alone.
type Root struct {
	Certificate *x509.Certificate
	Account     string
	key         crypto.Signer
}

// NewRoot makes a root. The title tells roots of an account apart.
func NewRoot(accountID, title string, now time.Time) (*Root, error) {
	if !account.ValidID(account.PrefixAccount, accountID) {
		return nil, account.Invalid("account", accountID, "must be the id of an account: ac- and 26 characters")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a root: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"Fairlead"},
			CommonName: "Seal " + title + now.UTC().Format(" 2006-01-02T15:04Z ") + accountID},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(rootYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,

		PermittedURIDomains:         []string{accountID},
		PermittedDNSDomainsCritical: true, // It makes the constraint of URIs critical, too.
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a root: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &Root{Certificate: cert, Account: accountID, key: key}, err
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
	if c.IsCA && len(c.PermittedURIDomains) == 1 &&
		account.ValidID(account.PrefixAccount, c.PermittedURIDomains[0]) {
		return c.PermittedURIDomains[0]
	}
	return ""
}

// Files returns the root's files: NAME.key and NAME.crt.
func (r *Root) Files(name string) ([]File, error) {
	key, err := encodeKey(r.key)
	return []File{{name + ".key", key, Secret}, {name + ".crt", encode(TypeCertificate, r.Certificate.Raw), Public}}, err
}

// KeyOf returns the fingerprint of the key of a certificate, as sealed.FormatKey writes it.
func KeyOf(c *x509.Certificate) string {
	return sealed.FormatKey(sha256.Sum256(c.RawSubjectPublicKeyInfo))
}

// Sign makes the certificate, PEM, for a PEM file with a request. It has the names of the request, all
// of which have to be allowed; those that are allowed if it asks for none.
func (r *Root) Sign(request []byte, allowed Names, life time.Duration, now time.Time) ([]byte, error) {
	csr, err := parseRequest(request)
	if err != nil {
		return nil, err
	}
	names, err := checkRequest(csr)
	if err != nil {
		return nil, err
	}
	if names.Account == "" {
		names = allowed
	}
	end := now.Add(life)
	if end.After(r.Certificate.NotAfter) {
		end = r.Certificate.NotAfter
	}
	switch {
	case names.Account != r.Account:
		return nil, fmt.Errorf("it is for the account %s, and the root for %s", names.Account, r.Account)
	case !allowed.allow(names):
		return nil, fmt.Errorf("it asks for %s, and allowed is %s", names, allowed)
	case life < MinLife || life > MaxLife:
		return nil, fmt.Errorf("a certificate lives for 24h to 30d, not %v", life)
	case now.After(end):
		return nil, fmt.Errorf("the root has ended on %s: make others with fairlead seal init", end.Format(time.DateOnly))
	}
	usage, title := x509.ExtKeyUsageServerAuth, "Sealed endpoints"
	if names.Caller != "" {
		usage, title = x509.ExtKeyUsageClientAuth, names.Caller
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Fairlead"}, CommonName: title},
		NotBefore:             now.Add(-backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
		URIs:                  names.uris(),
	}, r.Certificate, csr.PublicKey, r.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return encode(TypeCertificate, der), nil
}

// Types of PEM blocks.
const (
	TypeCertificate = "CERTIFICATE"
	TypeRequest     = "CERTIFICATE REQUEST"
	TypeKey         = "PRIVATE KEY"
)

func encode(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return encode(TypeKey, der), nil
}

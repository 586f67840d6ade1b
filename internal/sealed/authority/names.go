// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// Names are what a certificate is for: either endpoints of an account or one of its callers.
type Names struct {
	Account string
	URLs    []account.EndpointURL // URLs may have * as the first label of the host.
	Caller  string                // Caller is a DNS label, such as the name of a cluster.
}

// uris returns the names in the form in which a certificate has them.
func (n Names) uris() (all []*url.URL) {
	for _, u := range n.URLs {
		all = append(all, sealed.Name(n.Account, u))
	}
	if n.Caller != "" {
		all = append(all, &url.URL{Scheme: sealed.NameScheme, Host: n.Account, Path: "/caller/" + n.Caller})
	}
	return all
}

// String lists the names; "" when there are none.
func (n Names) String() string {
	var all []string
	for _, u := range n.URLs {
		all = append(all, u.String())
	}
	if n.Caller != "" {
		all = append(all, "caller "+n.Caller)
	}
	return strings.Join(all, ", ")
}

// ParseNames reads the URIs of a certificate or a request.
func ParseNames(uris []*url.URL) (n Names, err error) {
	for _, uri := range uris {
		one := Names{Account: uri.Host}
		kind, rest, _ := strings.Cut(strings.TrimPrefix(uri.EscapedPath(), "/"), "/")
		if kind == "caller" && account.ValidClusterID(rest) {
			one.Caller = rest
		} else if u, err := sealed.ParsePattern(kind + "://" + rest); err == nil {
			one.URLs = []account.EndpointURL{u}
		}
		if all := one.uris(); len(all) != 1 || all[0].String() != uri.String() ||
			!account.ValidID(account.PrefixAccount, one.Account) {
			return Names{}, fmt.Errorf("%q is no name of a sealed endpoint or caller, such as "+
				"fairlead://ac-…/http/api.demo:80 or fairlead://ac-…/caller/NAME", account.Shorten(uri.String()))
		}
		if n.Account != "" && n.Account != one.Account || n.Caller != "" || one.Caller != "" && len(n.URLs) > 0 {
			return Names{}, errors.New("it has names of two accounts, of two callers, or of endpoints and a caller: " +
				"a certificate is for endpoints of one account, or for one caller")
		}
		n = Names{one.Account, append(n.URLs, one.URLs...), one.Caller}
	}
	return n, nil
}

// allow reports whether all names that are asked for are among n.
func (n Names) allow(asked Names) bool {
	for _, u := range asked.URLs {
		if !sealed.Covers(n.uris(), asked.Account, u) {
			return false
		}
	}
	return asked.Caller == "" || asked.Caller == n.Caller && asked.Account == n.Account
}

// NewRequest makes a key and a request for a certificate with these names, or with none, as files
// NAME.key and NAME.csr.
func NewRequest(n Names, name string) ([]File, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: n.uris()}, key)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	text, err := encodeKey(key)
	return []File{{name + ".key", text, Secret}, {name + ".csr", encode(TypeRequest, der), Public}}, err
}

// parseRequest reads a PEM file that holds one request and nothing else.
func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	text = bytes.TrimSpace(text)
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 || block.Type != TypeRequest || !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
		return nil, errors.New("it is not one request, from -----BEGIN " + TypeRequest + "----- to -----END " + TypeRequest +
			"-----, and nothing else, as that of fairlead seal request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return csr, nil
}

// checkRequest returns the names that a request asks for. It must ask for nothing else, with a key
// that is good.
func checkRequest(csr *x509.CertificateRequest) (Names, error) {
	for _, e := range csr.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) { // names
			return Names{}, fmt.Errorf("it asks for the extension %s, which no certificate gets: ask for names alone", e.Id)
		}
	}
	if len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses) > 0 {
		return Names{}, fmt.Errorf("it asks for names that are no URIs of sealed endpoints, %q: ask for URIs alone",
			fmt.Sprint(csr.DNSNames, csr.IPAddresses, csr.EmailAddresses))
	}
	ec, isEC := csr.PublicKey.(*ecdsa.PublicKey)
	if _, isEd25519 := csr.PublicKey.(ed25519.PublicKey); !isEd25519 &&
		(!isEC || ec.Curve != elliptic.P256() && ec.Curve != elliptic.P384()) {
		return Names{}, errors.New("its key is none of ECDSA with P-256 or P-384, or Ed25519: make such a key, " +
			"for example with fairlead seal request")
	}
	return ParseNames(csr.URIs)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
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

// URIs returns the names in the form in which a certificate has them.
func (n Names) URIs() (all []*url.URL) {
	for _, u := range n.URLs {
		all = append(all, sealed.Name(n.Account, u))
	}
	if n.Caller != "" {
		all = append(all, sealed.CallerName(n.Account, n.Caller))
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
		if all := one.URIs(); len(all) != 1 || all[0].String() != uri.String() ||
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
	uncovered := func(u account.EndpointURL) bool { return !sealed.Covers(n.URIs(), asked.Account, u) }
	return !slices.ContainsFunc(asked.URLs, uncovered) && (asked.Caller == "" || asked.Caller == n.Caller)
}

// NewRequest makes a key and a request for a certificate with these names, or with none, as files
// NAME.key and NAME.csr.
func NewRequest(n Names, name string) ([]File, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: n.URIs()}, key)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	return []File{{name + ".key", keyPEM, Secret}, {name + ".csr", encode("CERTIFICATE REQUEST", der), Public}}, nil
}

// parseRequest reads a PEM file that holds one request and nothing else. The request must ask for
// nothing but names of sealed endpoints or of a caller, with a key that is good.
func parseRequest(text []byte) (n Names, public any, err error) {
	text = bytes.TrimSpace(text)
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 || block.Type != "CERTIFICATE REQUEST" || !bytes.HasPrefix(text, []byte("---")) {
		return n, nil, errors.New("it is not one request and nothing else, as that of fairlead seal request: " +
			"from -----BEGIN CERTIFICATE REQUEST----- to -----END CERTIFICATE REQUEST-----")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return n, nil, fmt.Errorf("it is damaged: %w", err)
	}
	for _, e := range csr.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) { // names
			return n, nil, fmt.Errorf("it asks for extension %s, which no certificate gets: ask for names alone", e.Id)
		}
	}
	if other := fmt.Sprint(csr.DNSNames, csr.IPAddresses, csr.EmailAddresses); other != "[] [] []" {
		return n, nil, fmt.Errorf("it asks for names that are no sealed endpoints', %q: ask for URIs alone", other)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return n, nil, errors.New("its key is no ECDSA key of P-256: make one with fairlead seal request")
	}
	n, err = ParseNames(csr.URIs)
	return n, csr.PublicKey, err
}

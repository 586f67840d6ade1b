// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	bindingRedirect = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
	bindingPost     = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"

	maxKeys    = 16   // keys of one identity provider
	minKeyBits = 2048 // size of RSA keys
)

// entity is an identity provider as its metadata describes it.
type entity struct {
	id         string
	sso        *url.URL            // sso is the URL of the redirect binding.
	keys       []*x509.Certificate // keys are the signing keys.
	validUntil time.Time           // validUntil is zero if the metadata does not limit it.
}

// parseMetadata reads the metadata of one identity provider. It does not check a signature: the
// text or the URL is trusted as configured.
func parseMetadata(raw []byte) (*entity, error) {
	root, err := parseXML(raw, metadataLimits)
	if err != nil {
		return nil, err
	}
	descriptor, err := findDescriptor(root)
	if err != nil {
		return nil, err
	}
	e := &entity{id: attr(descriptor, "entityID")}
	if e.id == "" || len(e.id) > 1024 || strings.ContainsFunc(e.id, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c)
	}) {
		return nil, errors.New("its entityID is missing, longer than 1024 bytes, or has spaces")
	}
	role, err := onlyChild(descriptor, nsMetadata, "IDPSSODescriptor")
	if err != nil {
		return nil, err
	}
	if !strings.Contains(" "+attr(role, "protocolSupportEnumeration")+" ", " "+nsProtocol+" ") {
		return nil, errors.New("its IDPSSODescriptor does not speak SAML 2.0")
	}
	for _, limited := range []*etree.Element{root, descriptor, role} {
		if attr(limited, "validUntil") == "" {
			continue
		}
		until, err := timeAttr(limited, "validUntil")
		if err != nil {
			return nil, err
		}
		if e.validUntil.IsZero() || until.Before(e.validUntil) {
			e.validUntil = until
		}
	}
	if e.sso, err = redirectURL(role); err != nil {
		return nil, err
	}
	e.keys, err = signingCertificates(role)
	return e, err
}

// findDescriptor returns the one EntityDescriptor of an identity provider.
func findDescriptor(root *etree.Element) (*etree.Element, error) {
	if isElement(root, nsMetadata, "EntityDescriptor") {
		return root, nil
	}
	if !isElement(root, nsMetadata, "EntitiesDescriptor") {
		return nil, errors.New("its root is neither md:EntityDescriptor nor md:EntitiesDescriptor: " +
			"give the metadata of an identity provider")
	}
	if found := children(root, nsMetadata, "EntityDescriptor"); len(found) == 1 &&
		len(children(root, nsMetadata, "EntitiesDescriptor")) == 0 {
		return found[0], nil
	}
	return nil, errors.New("it describes several entities: give the metadata of one identity provider")
}

// redirectURL returns the URL of the redirect binding.
func redirectURL(role *etree.Element) (*url.URL, error) {
	services := children(role, nsMetadata, "SingleSignOnService")
	for _, s := range services {
		if attr(s, "Binding") != bindingRedirect {
			continue
		}
		u, err := url.Parse(attr(s, "Location"))
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" ||
			(u.Scheme != "https" && (u.Scheme != "http" || !trafficpolicy.IsLoopbackHost(u.Hostname()))) {
			return nil, fmt.Errorf("its SingleSignOnService is at %.256q: it has to be an https URL",
				attr(s, "Location"))
		}
		return u, nil
	}
	return nil, fmt.Errorf("none of its %d SingleSignOnServices takes the HTTP-Redirect binding", len(services))
}

// signingCertificates returns the certificates for signatures.
func signingCertificates(role *etree.Element) ([]*x509.Certificate, error) {
	var keys []*x509.Certificate
	for _, k := range children(role, nsMetadata, "KeyDescriptor") {
		if use := attr(k, "use"); use != "" && use != "signing" {
			continue
		}
		for _, info := range children(k, nsSignature, "KeyInfo") {
			for _, data := range children(info, nsSignature, "X509Data") {
				certificates := children(data, nsSignature, "X509Certificate")
				if len(certificates) == 0 {
					continue
				}
				cert, err := parseCertificate(certificates[0]) // what follows are its issuers
				if err != nil {
					return nil, err
				}
				keys = append(keys, cert)
			}
		}
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it has no certificate for signatures (KeyDescriptor with X509Certificate)")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("it has %d certificates for signatures, more than %d", len(keys), maxKeys)
	}
	return keys, nil
}

func parseCertificate(e *etree.Element) (*x509.Certificate, error) {
	encoded, err := elementText(e)
	if err != nil {
		return nil, err
	}
	der, err := base64.StdEncoding.DecodeString(removeSpace(encoded))
	if err != nil {
		return nil, errors.New("reading its certificate: it is not base64; give the metadata as the provider " +
			"publishes it")
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errors.New("reading its certificate: it is no X.509 certificate; give the metadata as the " +
			"provider " +
			"publishes it")
	}
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("its certificate %.128q has a %s key: only RSA is taken", cert.Subject,
			cert.PublicKeyAlgorithm)
	}
	if key.N.BitLen() < minKeyBits {
		return nil, fmt.Errorf("its certificate %.128q has an RSA key of %d bits, fewer than %d", cert.Subject,
			key.N.BitLen(), minKeyBits)
	}
	return cert, nil
}

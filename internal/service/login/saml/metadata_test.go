// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"
	"time"
)

// validMetadata returns the metadata of an identity provider with two keys.
func validMetadata() string { return metadataOf(idpID, trustedSigner(), otherSigner()) }

// replacedMetadata changes the text of valid metadata.
func replacedMetadata(t *testing.T, from, to string) string {
	t.Helper()
	valid := validMetadata()
	if !strings.Contains(valid, from) {
		t.Fatalf("%q is not in the metadata", from)
	}
	return strings.ReplaceAll(valid, from, to)
}

// entities wraps entity descriptors in an EntitiesDescriptor.
func entities(descriptors string) string {
	return `<md:EntitiesDescriptor xmlns:md="` + nsMetadata + `">` + descriptors + `</md:EntitiesDescriptor>`
}

func TestParseMetadata_AcceptsValidMetadata(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"good": validMetadata(),
		"with comments": "<?xml version='1.0' encoding='UTF-8'?>\n<!-- ours -->" +
			replacedMetadata(t, "<md:KeyDescriptor", "<!-- key --><md:KeyDescriptor"),
		"one in a list":          entities(validMetadata()),
		"a certificate for both": replacedMetadata(t, ` use="signing"`, ""),
		"a certificate in lines": replacedMetadata(t, "<ds:X509Certificate>", "<ds:X509Certificate>\n\t "),
		"plain http on this machine": replacedMetadata(t, "https://idp.example.com/sso",
			"http://saml.localhost:8080/sso"),
	} {
		e, err := parseMetadata([]byte(metadata))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.id != idpID || len(e.keys) != 2 || e.sso.RawQuery != "tenant=7" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// refusedMetadata is metadata and a part of the error that parseMetadata returns for it.
type refusedMetadata struct{ name, metadata, reason string }

func expectMetadataRefused(t *testing.T, cases []refusedMetadata) {
	t.Helper()
	for _, c := range cases {
		if _, err := parseMetadata([]byte(c.metadata)); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %q", c.name, err, c.reason)
		}
	}
}

func TestParseMetadata_RefusesOtherDocuments(t *testing.T) {
	t.Parallel()
	valid := validMetadata()
	expectMetadataRefused(t, []refusedMetadata{
		{"another root", `<?xml version="1.0"?><!-- ours --><md:x` +
			valid[len("<md:EntityDescriptor"):len(valid)-len("</md:EntityDescriptor>")] + "</md:x>",
			"its root is neither"},
		{"two in a list", entities(valid + valid), "several entities"},
		{"one in a list of lists", entities(valid + `<md:EntitiesDescriptor/>`), "several entities"},
		{"empty", "", "no element"},
		{"a page", "<html><body></body></html>", "its root is neither"},
		{"a document type", "<!DOCTYPE x>" + valid, "document type"},
		{"an entity", `<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]>` + replacedMetadata(t, idpID, "&y;"),
			"document type"},
		{"huge", valid + strings.Repeat(" ", 1<<20), "more than 1024 KiB"},
		{"many elements", strings.Repeat("<a/>", 50_000), "more than 20000 elements"},
		{"deep", strings.Repeat("<a>", 1000) + strings.Repeat("</a>", 1000), "reading XML"},
		{"a service's", strings.ReplaceAll(valid, "IDPSSODescriptor", "SPSSODescriptor"),
			"0 elements IDPSSODescriptor"},
		{"SAML 1.1", replacedMetadata(t, nsProtocol, "urn:oasis:names:tc:SAML:1.1:protocol"),
			"does not speak SAML 2.0"},
		{"no entityID", replacedMetadata(t, ` entityID="`+idpID+`"`, ""), "entityID"},
		{"an entityID with spaces", replacedMetadata(t, idpID, "a b"), "entityID"},
		{"until a word", replacedMetadata(t, "<md:IDPSSODescriptor", `<md:IDPSSODescriptor validUntil="soon"`),
			"is no time"},
	})
}

func TestParseMetadata_RefusesCertificates(t *testing.T) {
	t.Parallel()
	const element = "<ds:X509Certificate>"
	expectMetadataRefused(t, []refusedMetadata{
		{"none", metadataOf(idpID), "no certificate"},
		{"for encryption only", replacedMetadata(t, `use="signing"`, `use="encryption"`), "no certificate"},
		{"no certificate", replacedMetadata(t, element, element+"AAAA"), "reading its certificate"},
		{"no base64", replacedMetadata(t, element, element+"%"), "reading its certificate"},
		{"a short key", metadataOf(idpID, newSigner(1024)), "fewer than 2048"},
		{"an ECDSA key", metadataOf(idpID, ecdsaSigner(t)), "only RSA"},
		{"too many keys", metadataOf(idpID, tooManySigners()...), "more than 16"},
	})
}

func TestParseMetadata_RefusesSingleSignOnURL(t *testing.T) {
	t.Parallel()
	const wrongURL, location = "has to be an https URL", "https://idp.example.com/sso"
	expectMetadataRefused(t, []refusedMetadata{
		{"only the POST binding", replacedMetadata(t, bindingRedirect, bindingPost), "HTTP-Redirect"},
		{"plain http", replacedMetadata(t, location, "http://idp.example.com/sso"), wrongURL},
		{"a script", replacedMetadata(t, location, "javascript:alert(1)//"), wrongURL},
		{"a user", replacedMetadata(t, "https://idp", "https://a:b@idp"), wrongURL},
	})
}

func ecdsaSigner(t *testing.T) *signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: today, NotAfter: today.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert: &x509.Certificate{Raw: der}}
}

func tooManySigners() []*signer {
	keys := make([]*signer, maxKeys+1)
	for i := range keys {
		keys[i] = trustedSigner()
	}
	return keys
}

// FuzzMetadata checks that parseMetadata returns an error or a complete entity for any bytes.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(metadataOf(idpID, trustedSigner())))
	f.Add([]byte(`<?xml version="1.0"?><EntityDescriptor xmlns="` + nsMetadata + `"/>`))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("<x/>"))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if e, err := parseMetadata(raw); err == nil && (e.id == "" || e.sso == nil || len(e.keys) == 0) {
			t.Errorf("%q: incomplete entity %+v", raw, e)
		}
	})
}

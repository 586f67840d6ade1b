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

func TestParseMetadata(t *testing.T) {
	t.Parallel()
	good := metadataOf(idpID, ours(), others())
	replaced := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in the metadata", from)
		}
		return strings.ReplaceAll(good, from, to)
	}
	for _, c := range []struct{ name, metadata, wrong string }{
		{name: "good", metadata: good},
		{name: "with a declaration and comments", metadata: `<?xml version="1.0"?><!-- ours --><md:x` +
			good[len("<md:EntityDescriptor"):len(good)-len("</md:EntityDescriptor>")] + "</md:x>",
			wrong: "its root is neither"},
		{name: "with comments", metadata: "<?xml version='1.0' encoding='UTF-8'?>\n<!-- ours -->" +
			replaced("<md:KeyDescriptor", "<!-- key --><md:KeyDescriptor")},
		{name: "one in a list", metadata: `<md:EntitiesDescriptor xmlns:md="` + nsMetadata + `">` + good +
			`</md:EntitiesDescriptor>`},
		{name: "two in a list", metadata: `<md:EntitiesDescriptor xmlns:md="` + nsMetadata + `">` + good + good +
			`</md:EntitiesDescriptor>`, wrong: "several entities"},
		{name: "one in a list of lists", metadata: `<md:EntitiesDescriptor xmlns:md="` + nsMetadata + `">` + good +
			`<md:EntitiesDescriptor/></md:EntitiesDescriptor>`, wrong: "several entities"},
		{name: "empty", metadata: "", wrong: "no element"},
		{name: "a page", metadata: "<html><body></body></html>", wrong: "its root is neither"},
		{name: "a document type", metadata: "<!DOCTYPE x>" + good, wrong: "document type"},
		{name: "an entity", metadata: `<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]>` + replaced(idpID, "&y;"),
			wrong: "document type"},
		{name: "huge", metadata: good + strings.Repeat(" ", 1<<20), wrong: "more than 1024 KiB"},
		{name: "many elements", metadata: strings.Repeat("<a/>", 50_000), wrong: "more than 20000 elements"},
		{name: "deep", metadata: strings.Repeat("<a>", 1000) + strings.Repeat("</a>", 1000), wrong: "reading XML"},
		{name: "no entityID", metadata: replaced(` entityID="`+idpID+`"`, ""), wrong: "entityID"},
		{name: "an entityID with spaces", metadata: replaced(idpID, "a b"), wrong: "entityID"},
		{name: "a service's", metadata: strings.ReplaceAll(good, "IDPSSODescriptor", "SPSSODescriptor"),
			wrong: "0 elements IDPSSODescriptor"},
		{name: "SAML 1.1", metadata: replaced(nsProtocol, "urn:oasis:names:tc:SAML:1.1:protocol"),
			wrong: "does not speak SAML 2.0"},
		{name: "no certificate", metadata: metadataOf(idpID), wrong: "no certificate"},
		{name: "a certificate for encryption only", metadata: replaced(`use="signing"`, `use="encryption"`),
			wrong: "no certificate"},
		{name: "a certificate for both", metadata: replaced(` use="signing"`, "")},
		{name: "a certificate that is none", metadata: replaced("<ds:X509Certificate>", "<ds:X509Certificate>AAAA"),
			wrong: "reading its certificate"},
		{name: "a certificate that is no base64", metadata: replaced("<ds:X509Certificate>", "<ds:X509Certificate>%"),
			wrong: "reading its certificate"},
		{name: "a certificate in lines", metadata: replaced("<ds:X509Certificate>", "<ds:X509Certificate>\n\t ")},
		{name: "a short key", metadata: metadataOf(idpID, newSigner(1024)), wrong: "fewer than 2048"},
		{name: "an ECDSA key", metadata: metadataOf(idpID, ecdsaSigner(t)), wrong: "only RSA"},
		{name: "too many keys", metadata: metadataOf(idpID, seventeenSigners()...), wrong: "more than 16"},
		{name: "only the POST binding", metadata: replaced(bindingRedirect, bindingPost), wrong: "HTTP-Redirect"},
		{name: "plain http", metadata: replaced("https://idp.example.com/sso", "http://idp.example.com/sso"),
			wrong: "has to be an https URL"},
		{name: "plain http on this machine",
			metadata: replaced("https://idp.example.com/sso", "http://saml.localhost:8080/sso")},
		{name: "a script", metadata: replaced("https://idp.example.com/sso", "javascript:alert(1)//"),
			wrong: "has to be an https URL"},
		{name: "a user in the URL", metadata: replaced("https://idp", "https://a:b@idp"),
			wrong: "has to be an https URL"},
		{name: "until a word", metadata: replaced("<md:IDPSSODescriptor", `<md:IDPSSODescriptor validUntil="soon"`),
			wrong: "is no time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, err := parseMetadata([]byte(c.metadata))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.id != idpID || len(e.keys) != 2 || e.sso.RawQuery != "tenant=7" {
				t.Errorf("got %+v", e)
			}
		})
	}
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

func seventeenSigners() []*signer {
	keys := make([]*signer, maxKeys+1)
	for i := range keys {
		keys[i] = ours()
	}
	return keys
}

// FuzzMetadata: whatever a URL answers, it is an error or metadata that can be used.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(metadataOf(idpID, ours())))
	f.Add([]byte(`<?xml version="1.0"?><EntityDescriptor xmlns="` + nsMetadata + `"/>`))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("<x/>"))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if e, err := parseMetadata(raw); err == nil && (e.id == "" || e.sso == nil || len(e.keys) == 0) {
			t.Errorf("%q is half an identity provider", raw)
		}
	})
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// samlPolicy returns a policy with an identity provider whose certificate expires then.
func samlPolicy(t *testing.T, notAfter time.Time) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	metadata := fmt.Sprintf(`<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" `+
		`entityID="https://idp.example.net/entity"><IDPSSODescriptor `+
		`protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol"><KeyDescriptor>`+
		`<KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#"><X509Data><X509Certificate>%s</X509Certificate>`+
		`</X509Data></KeyInfo></KeyDescriptor><SingleSignOnService `+
		`Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="https://idp.example.net/sso"/>`+
		`</IDPSSODescriptor></EntityDescriptor>`, base64.StdEncoding.EncodeToString(der))
	return fmt.Sprintf("on_http_request: [{actions: [{type: saml, config: {idp_metadata: %q}}]}]", metadata)
}

// TestLoginCertificates_AreTold checks metric, log and dashboard for a provider whose certificate ends
// in ten days, and that one that ends later is not told of.
func TestLoginCertificates_AreTold(t *testing.T) {
	t.Parallel()
	first := servicetest.StartPublic(t)
	end := time.Now().Add(10 * 24 * time.Hour).Truncate(time.Second)
	tenant := first.Tenant()
	tenant.Cloud(account.BindingPublic, "https://staff.example.com", samlPolicy(t, end), "")
	tenant.Cloud(account.BindingPublic, "https://later.example.com", samlPolicy(t, end.AddDate(1, 0, 0)), "")
	must.Succeed(t, first.StopAndWait())
	r := servicetest.Start(t, func(o *service.Options) { o.DataDir = first.Options.DataDir })
	const series = `fairlead_server_certificate_expiry_timestamp_seconds{use="identity_provider"}`
	servicetest.Eventually(t, series, func() bool { return gaugeSeconds(r, series).Equal(end) })
	if log := r.Log.String(); strings.Count(log, "certificates of an identity provider expire") != 1 ||
		!strings.Contains(log, "https://staff.example.com") {
		t.Errorf("the log tells of it once, with the URL:\n%s", log)
	}
	p := newDashboardBrowser(r)
	p.signIn(r.APIKey)
	_, _, page := p.request("/ui/", nil)
	for part, want := range map[string]bool{"Certificate expires": true, "https://idp.example.net/entity": true,
		"Logins at https://staff.example.com": true, "Logins at https://later.example.com": false} {
		if strings.Contains(page, part) != want {
			t.Errorf("the overview has %q: %t", part, !want)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// authnRequestOf starts a flow, and returns the AuthnRequest, the query and the request ID of its
// redirect.
func authnRequestOf(t *testing.T, p *Provider, f *login.Flow) (*etree.Element, url.Values, string) {
	t.Helper()
	s, err := p.StartFlow(t.Context(), f, testAction)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Scheme + "://" + u.Host + u.Path; got != "https://idp.example.com/sso" {
		t.Errorf("the browser goes to %s", got)
	}
	packed, err := base64.StdEncoding.DecodeString(u.Query().Get("SAMLRequest"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		t.Fatal(err)
	}
	root, err := parseXML(raw, responseLimits)
	if err != nil {
		t.Fatal(err)
	}
	return root, u.Query(), s.RequestID
}

func TestProvider_StartsFlow(t *testing.T) {
	t.Parallel()
	p := providerWith(t, nil)
	r, query, id := authnRequestOf(t, p, &login.Flow{State: "the state"})
	if query.Get("tenant") != "7" || query.Get("RelayState") != "the state" {
		t.Errorf("the query is %v", query)
	}
	for name, want := range map[string]string{
		"ID": id, "Version": "2.0", "IssueInstant": "2031-11-20T12:00:00Z", "Destination": idpSSO,
		"AssertionConsumerServiceURL": acsURL,
		"ProtocolBinding":             bindingPost, "ForceAuthn": "",
	} {
		if got := attr(r, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	issuer, err := onlyChild(r, nsAssertion, "Issuer")
	if err != nil || issuer.Text() != spID {
		t.Errorf("the issuer is %v, %v", issuer, err)
	}
	policy, err := onlyChild(r, nsProtocol, "NameIDPolicy")
	if err != nil || attr(policy, "Format") != formatPersistent || attr(policy, "AllowCreate") != "true" {
		t.Errorf("the policy is %v, %v", policy, err)
	}
	if _, _, again := authnRequestOf(t, p, &login.Flow{}); again == id || len(id) != 41 || !ncName.MatchString(id) {
		t.Errorf("ids of requests: %q, %q", id, again)
	}
}

func TestProvider_ForcesReauth(t *testing.T) {
	t.Parallel()
	if r, _, _ := authnRequestOf(t, providerWith(t, nil), &login.Flow{ForceReauth: true}); attr(r,
		"ForceAuthn") != "true" {
		t.Error("ForceReauth of a flow does not set ForceAuthn")
	}
	forced := &login.Flow{}
	p := providerWith(t, func(c *trafficpolicy.LoginConfig) { c.ForceAuthn, c.NameIDFormat = true, formatUnspecified })
	r, _, _ := authnRequestOf(t, p, forced)
	if attr(r, "ForceAuthn") != "true" || !forced.ForceReauth {
		t.Error("force_authn does not set ForceAuthn or ForceReauth")
	}
	if policy, err := onlyChild(r, nsProtocol, "NameIDPolicy"); err != nil || attr(policy, "Format") != "" {
		t.Errorf("an unspecified format is asked for: %v, %v", policy, err)
	}
}

func TestProvider_WritesMetadata(t *testing.T) {
	t.Parallel()
	raw, err := providerWith(t, nil).Metadata(t.Context(), testAction)
	if err != nil {
		t.Fatal(err)
	}
	root, err := parseXML(raw, metadataLimits)
	if err != nil {
		t.Fatal(err)
	}
	role, err := onlyChild(root, nsMetadata, "SPSSODescriptor")
	if err != nil {
		t.Fatal(err)
	}
	acs, err := onlyChild(role, nsMetadata, "AssertionConsumerService")
	if err != nil {
		t.Fatal(err)
	}
	if attr(root, "entityID") != spID || attr(acs, "Location") != acsURL || attr(acs, "Binding") != bindingPost ||
		attr(role, "WantAssertionsSigned") != "true" {
		t.Errorf("got %s", raw)
	}
}

func TestProvider_ScopeDiffers(t *testing.T) {
	t.Parallel()
	byText := providerWith(t, nil)
	byURL := providerWith(t, func(c *trafficpolicy.LoginConfig) {
		c.IdPMetadata, c.IdPMetadataURL = "", "https://idp.example.com/m"
	})
	renewed := providerWith(t, func(c *trafficpolicy.LoginConfig) {
		c.IdPMetadata, c.MaxSession = metadataOf(idpID, otherSigner()), time.Hour
	})
	other := providerWith(t, func(c *trafficpolicy.LoginConfig) {
		c.IdPMetadata = metadataOf("https://other.example.com", trustedSigner())
	})
	if byText.Scope() != renewed.Scope() {
		t.Error("another key or session duration changes the scope")
	}
	if byText.Scope() == other.Scope() || byText.Scope() == byURL.Scope() {
		t.Error("different identity providers have one scope")
	}
}

func TestValidateConfig(t *testing.T) {
	t.Parallel()
	expired := strings.Replace(metadataOf(idpID, trustedSigner()), " entityID=",
		` validUntil="2031-11-20T11:59:59Z" entityID=`, 1)
	for metadata, wrong := range map[string]string{
		metadataOf(idpID, trustedSigner()): "", metadataOf(idpID, expiredSigner(), trustedSigner()): "",
		metadataOf(idpID, expiredSigner()): "certificates have expired", expired: "validUntil", "<html/>": "its root",
	} {
		err := ValidateConfig(&trafficpolicy.LoginConfig{IdPMetadata: metadata}, today)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q", err, wrong)
		}
	}
	if err := ValidateConfig(&trafficpolicy.LoginConfig{IdPMetadataURL: "https://idp.example.com"}, today); err != nil {
		t.Error(err)
	}
}

func TestFactory_ReadsConfig(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*trafficpolicy.LoginConfig){
		"nameid_format": func(c *trafficpolicy.LoginConfig) { c.NameIDFormat = formatTransient },
		"idp_metadata":  func(c *trafficpolicy.LoginConfig) { c.IdPMetadata = "<html/>" },
	} {
		c := &trafficpolicy.LoginConfig{IdPMetadata: metadataOf(idpID, trustedSigner())}
		edit(c)
		p, err := Factory(time.Now)(c, http.DefaultClient)
		if p != nil || err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, %v, want one of %s", p, err, name)
		}
	}
}

// TestProvider_CertificateEnd: logins fail when the last certificate has expired, or the metadata in
// the policy has.
func TestProvider_CertificateEnd(t *testing.T) {
	t.Parallel()
	both := metadataOf(idpID, expiredSigner(), trustedSigner())
	for metadata, want := range map[string]time.Time{
		both:                               trustedSigner().cert.NotAfter,
		metadataOf(idpID, expiredSigner()): expiredSigner().cert.NotAfter,
		strings.Replace(both, " entityID=", ` validUntil="2031-12-20T12:00:00Z" entityID=`, 1): time.Date(2031, 12,
			20, 12, 0, 0, 0, time.UTC),
	} {
		p := providerWith(t, func(c *trafficpolicy.LoginConfig) { c.IdPMetadata = metadata })
		if name, end := p.CertificateEnd(); name != idpID || !end.Equal(want) {
			t.Errorf("%s ends at %s, want %s", name, end, want)
		}
	}
	m := startMetadataServer(t, strings.Replace(both, " entityID=",
		` validUntil="2031-12-20T12:00:00Z" entityID=`, 1))
	if _, end := m.p.CertificateEnd(); !end.IsZero() {
		t.Errorf("before the metadata was fetched: %s", end)
	}
	m.expectStart(1, true)
	if _, end := m.p.CertificateEnd(); !end.Equal(trustedSigner().cert.NotAfter) {
		t.Errorf("of fetched metadata, which is fetched again before its end: %s", end)
	}
}

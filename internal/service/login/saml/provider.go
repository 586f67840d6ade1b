// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// Provider is an identity provider that speaks SAML 2.0, as one action configures it. It is safe
// for concurrent use.
type Provider struct {
	config       trafficpolicy.LoginConfig
	nameIDFormat string
	scope        string
	source       metadataSource // source has the clock, too.
}

var (
	_ login.PostProvider      = (*Provider)(nil)
	_ login.CertifiedProvider = (*Provider)(nil)
)

// Factory returns the factory of the providers of the action saml, which read the time from now.
func Factory(now func() time.Time) login.Factory {
	return func(c *trafficpolicy.LoginConfig, client *http.Client) (login.Provider, error) {
		p, err := newProvider(c, client, now)
		if err != nil {
			return nil, err // a nil *Provider would be a non-nil Provider
		}
		return p, nil
	}
}

func newProvider(c *trafficpolicy.LoginConfig, client *http.Client, now func() time.Time) (*Provider, error) {
	p := &Provider{config: *c, nameIDFormat: cmp.Or(c.NameIDFormat, formatPersistent)}
	if p.nameIDFormat == formatTransient {
		return nil, account.Invalid("nameid_format", p.nameIDFormat,
			"a transient id changes at every login: use persistent")
	}
	p.source = metadataSource{url: c.IdPMetadataURL, client: client, now: now, fetchLock: make(chan struct{}, 1)}
	if c.IdPMetadataURL != "" {
		p.scope = "metadata " + c.IdPMetadataURL
		return p, nil
	}
	e, err := parseMetadata([]byte(c.IdPMetadata))
	if err != nil {
		return nil, account.Invalid("idp_metadata", fmt.Sprintf("%.64s", c.IdPMetadata), err.Error())
	}
	p.source.entity, p.scope = e, "entity "+e.id
	return p, nil
}

// ValidateConfig checks a config that is being set. Its error is an *account.Error that names the
// field.
func ValidateConfig(c *trafficpolicy.LoginConfig, now time.Time) error {
	p, err := newProvider(c, nil, func() time.Time { return now })
	if err != nil {
		return err
	}
	e := p.source.entity
	if e == nil {
		return nil // the URL is fetched at the first login
	}
	if !e.validUntil.IsZero() && now.After(e.validUntil) {
		return account.Invalid("idp_metadata", e.id, "it was valid until "+e.validUntil.Format(time.RFC3339)+
			" (validUntil): download it again")
	}
	if !slices.ContainsFunc(e.keys, func(k *x509.Certificate) bool { return now.Before(k.NotAfter) }) {
		return account.Invalid("idp_metadata", e.id,
			"all of its certificates have expired: renew them at the identity provider, and download it again")
	}
	return nil
}

// Scope identifies the provider by its entity id, or by the URL of its metadata.
func (p *Provider) Scope() string { return p.scope }

// CertificateEnd implements login.CertifiedProvider. Metadata that was fetched is fetched again
// before its own end, so that only the certificates count.
func (p *Provider) CertificateEnd() (name string, end time.Time) {
	p.source.mu.Lock()
	e := p.source.entity
	p.source.mu.Unlock()
	if e == nil {
		return "", time.Time{}
	}
	for _, key := range e.keys {
		if key.NotAfter.After(end) {
			end = key.NotAfter
		}
	}
	if p.source.url == "" && !e.validUntil.IsZero() && e.validUntil.Before(end) {
		end = e.validUntil
	}
	return e.id, end
}

// StartFlow returns the provider's URL with an AuthnRequest. Where the action's config has
// force_authn, it sets ForceReauth of the flow, so that the time of the authentication is checked.
func (p *Provider) StartFlow(ctx context.Context, f *login.Flow, action login.Action) (login.Redirect, error) {
	idp, err := p.source.get(ctx, nil)
	if err != nil {
		return login.Redirect{}, err
	}
	f.ForceReauth = f.ForceReauth || p.config.ForceAuthn
	id := newID()
	packed, err := deflate(p.authnRequest(id, idp, f.ForceReauth, action))
	if err != nil {
		return login.Redirect{}, fmt.Errorf("packing an AuthnRequest: %w", err)
	}
	target := *idp.sso
	query := url.Values{"SAMLRequest": {base64.StdEncoding.EncodeToString(packed)}, "RelayState": {f.State}}.Encode()
	if target.RawQuery != "" {
		query = target.RawQuery + "&" + query
	}
	target.RawQuery = query
	return login.Redirect{URL: target.String(), RequestID: id}, nil
}

func (p *Provider) authnRequest(id string, idp *entity, forceAuthn bool, action login.Action) *etree.Document {
	doc := etree.NewDocument()
	r := doc.CreateElement("samlp:AuthnRequest")
	r.CreateAttr("xmlns:samlp", nsProtocol)
	r.CreateAttr("xmlns:saml", nsAssertion)
	r.CreateAttr("ID", id)
	r.CreateAttr("Version", "2.0")
	r.CreateAttr("IssueInstant", p.source.now().UTC().Format("2006-01-02T15:04:05Z"))
	r.CreateAttr("Destination", idp.sso.String())
	r.CreateAttr("AssertionConsumerServiceURL", action.URL(login.PathACS))
	r.CreateAttr("ProtocolBinding", bindingPost)
	if forceAuthn {
		r.CreateAttr("ForceAuthn", "true")
	}
	r.CreateElement("saml:Issuer").SetText(action.EntityID())
	policy := r.CreateElement("samlp:NameIDPolicy")
	if p.nameIDFormat != formatUnspecified {
		policy.CreateAttr("Format", p.nameIDFormat)
	}
	policy.CreateAttr("AllowCreate", "true")
	return doc
}

func deflate(doc *etree.Document) ([]byte, error) {
	raw, err := doc.WriteToBytes()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// newID returns a new request ID of 160 random bits.
func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return "_" + hex.EncodeToString(b[:])
}

// Metadata returns the action's own metadata for an identity provider. Its entity id is the URL of
// the document.
func (p *Provider) Metadata(_ context.Context, action login.Action) ([]byte, error) {
	doc := etree.NewDocument()
	doc.CreateProcInst("xml", `version="1.0" encoding="UTF-8"`)
	e := doc.CreateElement("md:EntityDescriptor")
	e.CreateAttr("xmlns:md", nsMetadata)
	e.CreateAttr("entityID", action.EntityID())
	role := e.CreateElement("md:SPSSODescriptor")
	role.CreateAttr("AuthnRequestsSigned", "false")
	role.CreateAttr("WantAssertionsSigned", "true")
	role.CreateAttr("protocolSupportEnumeration", nsProtocol)
	role.CreateElement("md:NameIDFormat").SetText(p.nameIDFormat)
	acs := role.CreateElement("md:AssertionConsumerService")
	acs.CreateAttr("Binding", bindingPost)
	acs.CreateAttr("Location", action.URL(login.PathACS))
	acs.CreateAttr("index", "0")
	acs.CreateAttr("isDefault", "true")
	doc.Indent(2)
	return doc.WriteToBytes()
}

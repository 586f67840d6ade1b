// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
)

const (
	statusPrefix  = "urn:oasis:names:tc:SAML:2.0:status:"
	statusSuccess = statusPrefix + "Success"
)

// ConsumeResponse checks the response that a browser has posted: everything but the flow that it
// belongs to (Authentication.InResponseTo), if any, and that its assertion is used for the first
// time (Once). Posts need no session, so a panic of the check is an error too.
func (p *Provider) ConsumeResponse(
	ctx context.Context, r *http.Request, action login.Action,
) (c *login.Authentication, err error) {
	defer func() {
		if v := recover(); v != nil {
			c, err = nil, refusedError(fmt.Errorf("the check of a SAML response panicked: %v", v))
		}
	}()
	raw, err := decodeForm(r)
	if err != nil {
		return nil, refusedError(err)
	}
	root, err := parseXML(raw, responseLimits)
	if err != nil {
		return nil, refusedError(fmt.Errorf("reading the response: %w", err))
	}
	resp, err := parseResponse(root)
	if err != nil {
		return nil, refusedError(err)
	}
	idp, err := p.source.get(ctx, nil)
	if err != nil {
		return nil, err
	}
	v := &validator{entity: idp.id, audience: action.EntityID(), acs: action.URL(login.PathACS),
		format: p.nameIDFormat, now: p.source.now()}
	if err := v.checkEnvelope(resp.root); err != nil {
		return nil, refusedError(err)
	}
	if resp.assertion == nil {
		return nil, refusedError(errors.New("the response reports success and has no assertion"))
	}
	verified, err := p.verifySignatures(ctx, resp, idp)
	if err != nil {
		return nil, err
	}
	if verified.root != nil { // only the signed content of a signed response is read
		if err := v.checkEnvelope(verified.root); err != nil {
			return nil, refusedError(err)
		}
	}
	a, err := v.readAssertion(verified.assertion)
	if err != nil {
		return nil, refusedError(err)
	}
	if in := attr(resp.root, "InResponseTo"); in != "" && in != a.inResponseTo {
		return nil, refusedError(errors.New("the response is to another request than its assertion"))
	}
	return p.authenticate(a, idp)
}

// verifySignatures checks the signatures. When no known key made them, it looks for new keys in the
// metadata.
func (p *Provider) verifySignatures(ctx context.Context, resp *response, idp *entity) (*verifiedContent, error) {
	verified, err := resp.verify(idp.keys, p.source.now())
	if err == nil {
		return verified, nil
	}
	again, failure := p.source.get(ctx, idp)
	if failure != nil || again == idp || again.id != idp.id {
		return nil, refusedError(err)
	}
	if verified, err = resp.verify(again.keys, p.source.now()); err != nil {
		return nil, refusedError(err)
	}
	return verified, nil
}

// authenticate returns the person of an assertion if the config admits them.
func (p *Provider) authenticate(a *assertion, idp *entity) (*login.Authentication, error) {
	if a.inResponseTo == "" && p.config.ForceAuthn {
		return nil, login.RefusedError("This endpoint wants the identity provider to ask you again at every login. "+
			"Start from the endpoint's own address.", nil)
	}
	id := a.identity()
	if !login.InAuthorizedGroup(&p.config, id.Groups) {
		return nil, login.RefusedError("You are in none of the groups that this endpoint admits.",
			&login.PersonalError{Public: "the person is in none of the groups of authorized_groups", Person: id,
				Cause: fmt.Errorf("the person has the groups %.512q", id.Groups)})
	}
	return &login.Authentication{
		Authentication: account.Authentication{
			Key:      strings.Join([]string{"saml", idp.id, a.format, a.nameID}, "\x00"),
			Provider: account.IdentityProvider{Name: idp.id, URL: providerURL(idp)}, Identity: id,
			AuthTime: a.authnInstant, NotAfter: a.sessionEnd,
		},
		InResponseTo: a.inResponseTo,
		Once:         "saml\x00" + idp.id + "\x00" + a.id,
		OnceUntil:    a.validUntil.Add(login.ClockSkew),
	}, nil
}

// providerURL returns an identity provider's URL for people: its entity id, where that is a URL.
func providerURL(idp *entity) string {
	if u, err := url.Parse(idp.id); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
		return idp.id
	}
	return idp.sso.Scheme + "://" + idp.sso.Host
}

// decodeForm returns the XML of a form with one SAMLResponse.
func decodeForm(r *http.Request) ([]byte, error) {
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("reading the form: %w", err)
	}
	values := r.PostForm["SAMLResponse"]
	if len(values) != 1 {
		return nil, fmt.Errorf("the form has %d fields SAMLResponse, not one", len(values))
	}
	raw, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return nil, fmt.Errorf("reading the form: %w", err)
	}
	return raw, nil
}

// statusName matches the last part of a status code that is fit for a sentence.
var statusName = regexp.MustCompile(`^[A-Za-z]{1,40}$`)

// checkEnvelope checks what surrounds the assertion. Before the signature is checked it can only
// refuse.
func (v *validator) checkEnvelope(root *etree.Element) error {
	if attr(root, "Version") != "2.0" || attr(root, "ID") == "" {
		return errors.New("the response has no ID, or is not of version 2.0")
	}
	if to := attr(root, "Destination"); to != v.acs {
		return fmt.Errorf("the response is for %.256q, and not for %.256q", to, v.acs)
	}
	issued, err := timeAttr(root, "IssueInstant")
	if err != nil {
		return err
	}
	if issued.After(v.now.Add(login.ClockSkew)) {
		return errors.New("the response was issued in the future: the clocks differ")
	}
	issuers := children(root, nsAssertion, "Issuer")
	if len(issuers) > 1 {
		return errors.New("the response has several issuers")
	}
	for _, issuer := range issuers {
		if err := v.checkIssuerElement(issuer); err != nil {
			return err
		}
	}
	status, err := onlyChild(root, nsProtocol, "Status")
	if err != nil {
		return err
	}
	code, err := onlyChild(status, nsProtocol, "StatusCode")
	if err != nil {
		return err
	}
	if attr(code, "Value") == statusSuccess {
		return nil
	}
	return newStatusError(status, code)
}

// statusError is a response that reports a failure.
type statusError struct{ name, message string }

func (e *statusError) Error() string {
	return fmt.Sprintf("the identity provider answered %s: %.256q", e.name, e.message)
}

func newStatusError(status, code *etree.Element) error {
	e := &statusError{name: "with a status that is not known here"}
	// the second one is more precise
	for _, c := range append([]*etree.Element{code}, children(code, nsProtocol, "StatusCode")...) {
		if name := strings.TrimPrefix(attr(c, "Value"), statusPrefix); statusName.MatchString(name) {
			e.name = name
		}
	}
	for _, m := range children(status, nsProtocol, "StatusMessage") {
		e.message, _ = elementText(m)
	}
	return e
}

// refusedError makes the error of an invalid response. Text of the response is logged, not shown.
func refusedError(cause error) error {
	msg := "The answer of the identity provider was refused. Start again from the endpoint's own address; the " +
		"server's log says what was wrong with it."
	var status *statusError
	var format *formatError
	switch {
	case errors.As(cause, &status):
		msg = "The identity provider did not confirm the login (" + status.name + ")."
	case errors.As(cause, &format):
		msg = "The identity provider names people in another way than this endpoint expects. Its administrator has " +
			"to set the same NameID format on both sides (nameid_format)."
	case errors.Is(cause, errTransient):
		msg = "The identity provider gives people another name at every login (a transient NameID). Its " +
			"administrator has to choose a persistent one."
	case errors.Is(cause, errEncrypted):
		msg = "The identity provider encrypts its assertions, which is not offered here. Its administrator has to " +
			"switch that off; the connection is encrypted all the same."
	}
	return login.RefusedError(msg, cause)
}

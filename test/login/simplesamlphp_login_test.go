// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestSimpleSAMLphp_LogsIn logs in with responses of an independent implementation of XML,
// canonical form and signatures.
func TestSimpleSAMLphp_LogsIn(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	for name, more := range map[string]map[string]any{
		"signed assertion": {"saml20.sign.response": false},
		"signed response":  {"saml20.sign.assertion": false},
		"both signed":      nil,
		"sha-512":          {"signature.algorithm": "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512"},
	} {
		t.Run(name, func(t *testing.T) {
			s := idp.site(tenant, strings.ReplaceAll(name, " ", "-"), more, nil)
			b := newBrowser(t)
			asking := b.visit(s.url + "/deep?q=a%26b")
			if asking.url.Hostname() != parse(t, idp.url).Hostname() || !asking.asksPassword() {
				t.Fatalf("the browser is not redirected to the provider: %s", asking)
			}
			e := b.signIn(asking, alice).echo(t)
			want := map[string]string{"Email": alice.email, "Name": "Alice %C3%84rmel", "Groups": "eng,ops",
				"Provider": idp.url + "/idp"}
			for header, value := range want {
				if got := e.Header.Get("Fairlead-Auth-" + header); got != value {
					t.Errorf("%s is %q, want %q", header, got, value)
				}
			}
			if e.URL != "/deep?q=a%26b" {
				t.Errorf("the login ends at %s", e.URL)
			}
		})
	}
	var list struct {
		Sessions []struct {
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"application_sessions"`
	}
	tenant.api("GET", "/app/sessions", nil, &list)
	if len(list.Sessions) != 4 {
		t.Errorf("there are %d sessions", len(list.Sessions))
	}
	for _, session := range list.Sessions {
		if session.ExpiresAt.After(time.Now().Add(simpleSAMLSession + time.Second)) {
			t.Errorf("a session lasts until %s, longer than the provider's", session.ExpiresAt)
		}
	}
}

// TestSimpleSAMLphp_RefusesResponses refuses weak signatures, encryption, another NameID format, a
// person outside the groups, and a response for another service, each with its message.
func TestSimpleSAMLphp_RefusesResponses(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	for name, c := range map[string]struct {
		more     map[string]any
		config   map[string]any
		user     person
		sentence string
	}{
		"sha-1": {more: map[string]any{"signature.algorithm": "http://www.w3.org/2000/09/xmldsig#rsa-sha1"},
			user: alice, sentence: "was refused"},
		"encrypted": {more: map[string]any{"assertion.encryption": true, "certData": idp.certificate()}, user: alice,
			sentence: "encrypts its assertions"},
		"another format": {
			config: map[string]any{"nameid_format": "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"},
			user:   alice, sentence: "ERR_FL_3015"},
		"in no group": {config: map[string]any{"authorized_groups": []string{"eng"}}, user: bob,
			sentence: "none of the groups"},
		"another service": {user: alice, sentence: "ERR_FL_3015",
			more: map[string]any{"AssertionConsumerService": idp.site(tenant, "other", nil, nil).
				loginURL("saml", "acs")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := idp.site(tenant, strings.ReplaceAll(name, " ", "-"), c.more, c.config)
			b := newBrowser(t)
			end := b.signIn(b.visit(s.url+"/"), c.user)
			if end.status != http.StatusForbidden || !strings.Contains(end.body, c.sentence) {
				t.Errorf("want a refusal with %q: %s", c.sentence, end)
			}
		})
	}
}

// TestSimpleSAMLphp_ForcesReauth makes the provider ask for the password of a user who has a
// session with it, by force_authn and after a revocation.
func TestSimpleSAMLphp_ForcesReauth(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	first, second := idp.site(tenant, "first", nil, nil), idp.site(tenant, "second", nil, nil)
	forced := idp.site(tenant, "forced", nil, map[string]any{"force_authn": true})
	b := newBrowser(t)
	b.signIn(b.visit(first.url+"/"), alice).echo(t)

	known := b.visit(second.url + "/")
	f, ok := known.form("SAMLResponse")
	if !ok {
		t.Fatalf("the provider has no session of the browser: %s", known)
	}
	user := b.post(known, f).echo(t).Header.Get("Fairlead-Auth-User-Id")

	asking := b.visit(forced.url + "/")
	if !asking.asksPassword() {
		t.Fatalf("force_authn asks for no password: %s", asking)
	}
	if e := b.signIn(asking, alice).echo(t); e.Header.Get("Fairlead-Auth-User-Id") != user {
		t.Errorf("one person has two ids: %+v", e)
	}

	if status := tenant.api("DELETE", "/app/users/"+user, nil, nil); status != http.StatusNoContent {
		t.Fatalf("revoking: %d", status)
	}
	at := b.visit(first.url + "/again")
	if f, ok := at.form("SAMLResponse"); ok { // of the provider's session, which the service refuses
		at = b.post(at, f)
	}
	if !at.asksPassword() {
		t.Fatalf("after a revocation the provider does not ask for the password: %s", at)
	}
	if e := b.signIn(at, alice).echo(t); e.URL != "/again" {
		t.Errorf("the login ends at %s", e.URL)
	}
}

// TestSimpleSAMLphp_IdPInitiated accepts logins that start at the provider if the policy allows
// them.
func TestSimpleSAMLphp_IdPInitiated(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	for name, c := range map[string]struct {
		more, config map[string]any
		sentence     string // of the refusal; "" = it is admitted
	}{
		"admitted":     {config: map[string]any{"allow_idp_initiated": true}},
		"not admitted": {sentence: "began at the identity provider"},
		"and forced": {config: map[string]any{"allow_idp_initiated": true, "force_authn": true},
			sentence: "Start from the endpoint"},
		"transient": {more: map[string]any{"NameIDFormat": "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"},
			config: map[string]any{"allow_idp_initiated": true}, sentence: "a transient NameID"},
	} {
		t.Run(name, func(t *testing.T) {
			s := idp.site(tenant, "initiated-"+strings.ReplaceAll(name, " ", "-"), c.more, c.config)
			b := newBrowser(t)
			end := b.signIn(b.visit(idp.initiateURL(s.loginURL("saml", "metadata"))+"&RelayState="+
				url.QueryEscape("/x?y=1")),
				alice)
			if c.sentence == "" {
				if e := end.echo(t); e.URL != "/x?y=1" || e.Header.Get("Fairlead-Auth-Email") != alice.email {
					t.Errorf("the upstream got %+v", e)
				}
			} else if end.status != http.StatusForbidden || !strings.Contains(end.body, c.sentence) {
				t.Errorf("want a refusal with %q: %s", c.sentence, end)
			}
		})
	}
}

var (
	signatures = regexp.MustCompile(`(?s)<ds:Signature .*?</ds:Signature>`)
	assertions = regexp.MustCompile(`(?s)<saml:Assertion .*</saml:Assertion>`)
)

// forgeries returns responses that an attacker makes of a genuine one.
func forgeries(genuine string) map[string]string {
	signature := signatures.FindString(genuine)
	evil := signatures.ReplaceAllString(strings.ReplaceAll(assertions.FindString(genuine), "ssp-alice", "ssp-bob"), "")
	evil = strings.Replace(evil, ` ID="`, ` ID="_x`, 1)
	return map[string]string{
		"another user":             strings.ReplaceAll(genuine, "ssp-alice", "ssp-bob"),
		"no signature":             signatures.ReplaceAllString(genuine, ""),
		"no signature but one":     strings.Replace(strings.ReplaceAll(genuine, ">eng<", ">admins<"), signature, "", 1),
		"another assertion before": strings.Replace(genuine, "<saml:Assertion ", evil+"<saml:Assertion ", 1),
		"another assertion behind": strings.Replace(genuine, "</saml:Assertion>", "</saml:Assertion>"+evil, 1),
		"a comment":                strings.Replace(genuine, ">ssp-alice<", ">ssp-<!-- -->alice<", 1),
		"an entity": `<!DOCTYPE x [<!ENTITY bob "ssp-bob">]>` +
			strings.Replace(genuine, ">ssp-alice<", ">&bob;<", 1),
		"no InResponseTo": strings.ReplaceAll(genuine, ` InResponseTo="`, ` InResponse="`),
	}
}

// TestSAML_RefusesForgedAssertions refuses forgeries of a genuine response, and accepts the
// response once after them.
func TestSAML_RefusesForgedAssertions(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	b := newBrowser(t)
	s := idp.site(tenant, "forged", nil,
		map[string]any{"idp_metadata": b.visit(idp.url + "/saml2/idp/metadata.php").body,
			"allow_idp_initiated": true})
	other := idp.site(tenant, "elsewhere", nil, map[string]any{"allow_idp_initiated": true})
	sent, f := b.samlForm(s.url + "/mine")
	raw, err := base64.StdEncoding.DecodeString(f.values.Get("SAMLResponse"))
	must.Succeed(t, err)
	for name, forged := range forgeries(string(raw)) {
		if forged == string(raw) {
			t.Fatalf("%s: nothing was forged in %s", name, raw)
		}
		end := b.post(sent, form{action: f.action, values: url.Values{"RelayState": f.values["RelayState"],
			"SAMLResponse": {base64.StdEncoding.EncodeToString([]byte(forged))}}})
		if _, finished := end.findHop("/finish"); end.status != http.StatusForbidden ||
			!strings.Contains(end.body, "ERR_FL_3015") || finished {
			t.Errorf("%s: %s", name, end)
		}
	}
	elsewhere := f
	elsewhere.action = other.loginURL("saml", "acs")
	if end := b.post(sent, elsewhere); end.status != http.StatusForbidden {
		t.Errorf("at another endpoint: %s", end)
	}
	var users struct {
		Users []struct{ ID string } `json:"application_users"`
	}
	if tenant.api("GET", "/app/users", nil, &users); len(users.Users) > 0 {
		t.Errorf("forged assertions have made users: %+v", users)
	}
	if e := b.post(sent, f).echo(t); e.URL != "/mine" || e.Header.Get("Fairlead-Auth-Email") != alice.email {
		t.Errorf("the genuine one: %+v", e)
	}
	if e := b.post(sent, f).echo(t); e.URL != "/" { // the session of the first time
		t.Errorf("used a second time: %+v", e)
	}
}

// site serves a site of the tenant with a saml action, and registers it with the provider. more are
// fields of the registration, config those of the action.
func (s *simpleSAML) site(a *tenant, name string, more, config map[string]any) *site {
	s.Helper()
	at := a.site(name)
	c := map[string]any{"idp_metadata_url": s.url + "/saml2/idp/metadata.php"}
	if config["idp_metadata"] != nil {
		delete(c, "idp_metadata_url")
	}
	for k, v := range config {
		c[k] = v
	}
	s.register(at.host, at.loginURL("saml", "metadata"), at.loginURL("saml", "acs"), more)
	return at.serve(always(action{Type: "saml", Config: c}))
}

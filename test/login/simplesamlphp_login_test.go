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
)

// TestSimpleSAMLphp_LogsIn logs in with an identity provider whose authors wrote none of the
// libraries here: their XML, their canonical form, their signatures.
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
				t.Fatalf("the browser is not sent to the provider: %s", asking)
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
				t.Errorf("it ends at %s", e.URL)
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
	for name, c := range map[string]struct {
		more     map[string]any
		config   map[string]any
		who      person
		sentence string
	}{
		"sha-1": {more: map[string]any{"signature.algorithm": "http://www.w3.org/2000/09/xmldsig#rsa-sha1"},
			who: alice, sentence: "was refused"},
		"encrypted": {more: map[string]any{"assertion.encryption": true, "certData": idp.certificate()}, who: alice,
			sentence: "encrypts its assertions"},
		"another format": {
			config: map[string]any{"nameid_format": "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"},
			who:    alice, sentence: "ERR_FL_3015"},
		"in no group": {config: map[string]any{"authorized_groups": []string{"eng"}}, who: bob,
			sentence: "none of the groups"},
		"another service": {more: map[string]any{"AssertionConsumerService": tenant.site("signed-response").
			at("saml", "acs")}, who: alice, sentence: "ERR_FL_3015"},
	} {
		t.Run(name, func(t *testing.T) {
			s := idp.site(tenant, strings.ReplaceAll(name, " ", "-"), c.more, c.config)
			b := newBrowser(t)
			end := b.signIn(b.visit(s.url+"/"), c.who)
			if end.status != http.StatusForbidden || !strings.Contains(end.body, c.sentence) {
				t.Errorf("want a refusal with %q: %s", c.sentence, end)
			}
		})
	}
}

// TestSimpleSAMLphp_ForcesReauth: force_authn, and a revocation, make the provider ask for the
// password of a user who has a session with it.
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
		t.Fatalf("the provider does not know the browser: %s", known)
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
	if f, ok := at.form("SAMLResponse"); ok { // without asking: that does not count
		at = b.post(at, f)
	}
	if !at.asksPassword() {
		t.Fatalf("after a revoke the provider is not told to ask: %s", at)
	}
	if e := b.signIn(at, alice).echo(t); e.URL != "/again" {
		t.Errorf("it ends at %s", e.URL)
	}
}

// TestSimpleSAMLphp_IdPInitiated: logins that begin in the provider's portal.
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
			end := b.signIn(b.visit(idp.initiate(s.at("saml", "metadata"))+"&RelayState="+url.QueryEscape("/x?y=1")),
				alice)
			if c.sentence == "" {
				if e := end.echo(t); e.URL != "/x?y=1" || e.Header.Get("Fairlead-Auth-Email") != alice.email {
					t.Errorf("the upstream was asked %+v", e)
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

// TestSAML_RefusesForgedAssertions posts what an attacker makes of the provider's own response to
// the service, and then the response as it was, which nothing of this has used up.
func TestSAML_RefusesForgedAssertions(t *testing.T) {
	t.Parallel()
	idp := startSimpleSAML(t)
	tenant := newTenant(t)
	b := newBrowser(t)
	s := idp.site(tenant, "forged", nil,
		map[string]any{"idp_metadata": b.visit(idp.url + "/saml2/idp/metadata.php").body,
			"allow_idp_initiated": true})
	other := idp.site(tenant, "elsewhere", nil, map[string]any{"allow_idp_initiated": true})
	sent := b.answer(b.visit(s.url+"/mine"), alice)
	f, ok := sent.form("SAMLResponse")
	if !ok {
		t.Fatalf("the provider posts nothing: %s", sent)
	}
	raw, err := base64.StdEncoding.DecodeString(f.values.Get("SAMLResponse"))
	if err != nil {
		t.Fatal(err)
	}
	genuine := string(raw)
	evil := signatures.ReplaceAllString(strings.ReplaceAll(assertions.FindString(genuine), "ssp-alice", "ssp-bob"), "")
	for name, forged := range map[string]string{
		"another user": strings.ReplaceAll(genuine, "ssp-alice", "ssp-bob"),
		"no signature": signatures.ReplaceAllString(genuine, ""),
		"no signature but one": strings.Replace(strings.ReplaceAll(genuine, ">eng<", ">admins<"),
			signatures.FindString(genuine), "", 1),
		"another assertion before": strings.Replace(genuine, "<saml:Assertion ",
			strings.Replace(evil, ` ID="`, ` ID="_x`, 1)+"<saml:Assertion ", 1),
		"another assertion behind": strings.Replace(genuine, "</saml:Assertion>",
			"</saml:Assertion>"+strings.Replace(evil, ` ID="`, ` ID="_x`, 1), 1),
		"a comment": strings.Replace(genuine, ">ssp-alice<", ">ssp-<!-- -->alice<", 1),
		"an entity": `<!DOCTYPE x [<!ENTITY bob "ssp-bob">]>` + strings.Replace(genuine, ">ssp-alice<",
			">&bob;<", 1),
		"no InResponseTo": strings.NewReplacer(` InResponseTo="`, ` InResponse="`).Replace(genuine),
	} {
		if forged == genuine {
			t.Fatalf("%s: nothing was forged in %s", name, genuine)
		}
		bad := form{action: f.action,
			values: url.Values{"RelayState": f.values["RelayState"],
				"SAMLResponse": {base64.StdEncoding.EncodeToString([]byte(forged))}}}
		end := b.post(sent, bad)
		if _, tries := end.passed("/finish"); end.status != http.StatusForbidden ||
			!strings.Contains(end.body, "ERR_FL_3015") || tries {
			t.Errorf("%s: %s", name, end)
		}
	}
	elsewhere := f
	elsewhere.action = other.at("saml", "acs")
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
	if end := b.post(sent, f); end.status != http.StatusForbidden {
		t.Errorf("used a second time: %s", end)
	}
}

// site serves one of the tenant's with a saml action of this provider, who knows it; more are
// fields of its side, config of the action's.
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
	s.register(at.host, at.at("saml", "metadata"), at.at("saml", "acs"), more)
	return at.serve(always(action{Type: "saml", Config: c}))
}

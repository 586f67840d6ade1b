// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

var failedRow = regexp.MustCompile(`(?s)<h2 id="failed">.*?</section>`)

// TestDashboard_ShowsFailedLogins fails logins at a provider, and looks at the page of identities
// as the owner and as another account. What is planted in requests and answers is on no page and in
// no log.
func TestDashboard_ShowsFailedLogins(t *testing.T) {
	t.Parallel()
	w := startLogins(t)
	w.idp.Person["email"] = "planted-person@example.com"
	w.protect("https://app.example.com", w.policy(""), mirror)
	secrets := failLogins(t, w)
	owner := newDashboardBrowser(w.Server)
	owner.signIn(w.APIKey)
	_, _, page := owner.request("/ui/traffic-policy/identities", nil)
	shown := html.UnescapeString(failedRow.FindString(page))
	for _, want := range []string{"AADSTS50105: <script>not assigned</script>", "invalid_client",
		"at the provider’s answer", "https://app.example.com", "The person saw:", "127.0.0.1:"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is missing: %s", want, shown)
		}
	}
	if strings.Contains(page, "<script>not") {
		t.Error("the provider's sentence is HTML")
	}
	secrets = append(secrets, "planted-", oidctest.ClientSecret, oidctest.AccessToken)
	log := w.Log.String()
	for _, secret := range secrets {
		if secret == "" || strings.Contains(page, secret) || strings.Contains(shown, secret) {
			t.Errorf("the page has %q", secret)
		}
		if strings.Contains(log, secret) {
			at := strings.Index(log, secret)
			t.Errorf("the log has %q: …%s", secret, log[max(0, at-200):min(len(log), at+100)])
		}
	}
	other := newDashboardBrowser(w.Server)
	other.signIn(w.CreateAccount().APIKey)
	if _, _, page := other.request("/ui/traffic-policy/identities", nil); !strings.Contains(page,
		"None within a day") ||
		strings.Contains(page, "AADSTS") {
		t.Error("another account's failed logins are on the page")
	}
}

// failLogins fails four logins, two at the provider and two at its answer, and returns what is secret in them.
func failLogins(t *testing.T, w *loginServer) (secrets []string) {
	t.Helper()
	callback := func(more url.Values) {
		b := w.newLoginBrowser()
		to, err := url.Parse(w.request(b, "GET", "https://app.example.com/").header.Get("Location"))
		must.Succeed(t, err)
		q := to.Query()
		secrets = append(secrets, q.Get("state"), q.Get("nonce"), q.Get("code_challenge"))
		more.Set("state", q.Get("state"))
		more.Set("iss", w.idp.URL)
		w.request(b, "GET", q.Get("redirect_uri")+"?"+more.Encode())
	}
	callback(url.Values{"error": {"access_denied"},
		"error_description": {"AADSTS50105: <script>not assigned</script> code=planted-code"}})
	callback(url.Values{"code": {"planted-code-that-is-unknown"}})
	w.idp.Token = func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = rw.Write([]byte(`{"error":"invalid_client","error_description":"client_secret=` + oidctest.ClientSecret +
			` is wrong","id_token":"planted-id-token"}`))
		return true
	}
	w.logIn(w.newLoginBrowser(), "https://app.example.com/")
	w.idp.Token = nil
	w.idp.Claims = map[string]any{"aud": "planted-other-client-0123456789"}
	w.logIn(w.newLoginBrowser(), "https://app.example.com/")
	return secrets
}

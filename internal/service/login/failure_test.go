// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// failureCase is a step of a login; without step, nothing of it is reported.
type failureCase struct {
	fail   func(w *harness, b *browser)
	step   string
	code   account.Code
	reason string
}

// confirmedPersons are those whom a failure names, by the case.
func confirmedPersons() map[string]string {
	return map[string]string{"a personal cause": "ann@example.com (1078)", "not in the groups any more": "Ann (ann)"}
}

func failureCases() map[string]failureCase {
	return map[string]failureCase{
		"the provider does not answer": {func(w *harness, b *browser) {
			w.idp.err = ProviderError(errors.New("no route to host"))
			b.get("/")
		}, PathLogin, account.CodeProviderFailed, "no route to host"},
		"a refusal": {func(w *harness, b *browser) {
			b.get("/")
			b.get(strings.Replace(w.callback(), "good", "bad", 1))
		}, PathCallback, account.CodeLoginFailed, "cause-of-refusal"},
		"a claim of another kind": {func(w *harness, b *browser) {
			b.get("/")
			w.idp.err = ProviderError(fmt.Errorf("reading the ID token: %w",
				json.Unmarshal([]byte(`{"exp":"soon"}`), &struct {
					Exp int64 `json:"exp"`
				}{})))
			b.get(w.callback())
		}, PathCallback, account.CodeProviderFailed, "reading the ID token: exp is a text and must be a whole number"},
		"no cause": {func(w *harness, b *browser) {
			b.get("/")
			w.idp.err = RefusedError("no more people", nil)
			b.get(w.callback())
		}, PathCallback, account.CodeLoginFailed, "no more people"},
		"a personal cause": {func(w *harness, b *browser) {
			b.get("/")
			w.idp.err = RefusedError("no", fmt.Errorf("checking: %w",
				&PersonalError{Public: "no group", Person: account.LoginIdentity{Email: "ann@example.com",
					ProviderUserID: "1078"}, Cause: errors.New("planted-group")}))
			b.get(w.callback())
		}, PathCallback, account.CodeLoginFailed, "no group"},
		"a wrong clock": {func(w *harness, b *browser) {
			w.clockErr = errors.New("an hour off")
			b.get("/")
		}, PathLogin, account.CodeUnavailable, "an hour off"},
		"the store": {func(w *harness, b *browser) {
			b.login("/")
			w.store.err = errors.New("no database")
			b.get("/")
		}, stepSession, account.CodeUnavailable, "no database"},
		"not in the groups any more": {func(w *harness, b *browser) {
			b.login("/")
			w.config.AuthorizedGroups = []string{"admins"}
			b.get("/")
		}, stepSession, account.CodeLoginFailed, "authorized_groups"},
		"a login that succeeds": {func(_ *harness, b *browser) { b.login("/") }, "", "", ""},
		"a logout from another site": {func(_ *harness, b *browser) {
			b.login("/")
			b.post("/_fairlead/staff/logout", "", "Origin", "http://evil.example")
		}, "", "", ""},
	}
}

// failures is a FailureRecorder that keeps what it is given.
type failures struct {
	accountID string // account of the last failure
	all       []traffic.LoginFailure
}

func (f *failures) LoginFailed(accountID string, one traffic.LoginFailure) {
	f.accountID, f.all = accountID, append(f.all, one)
}

// TestLogin_ReportsFailures takes steps of a login that fail, and some that do not.
func TestLogin_ReportsFailures(t *testing.T) {
	t.Parallel()
	for name, c := range failureCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHarness(t)
			var got failures
			w.handler.failures = &got
			c.fail(w, w.browser())
			if c.step == "" {
				if len(got.all) != 0 {
					t.Errorf("reported %+v", got.all)
				}
				return
			}
			if len(got.all) != 1 {
				t.Fatalf("reported %+v", got.all)
			}
			f := got.all[0]
			if f.Step != c.step || f.Code != c.code || !strings.Contains(f.Reason, c.reason) || f.Shown == "" ||
				got.accountID != "ac" || f.Person != confirmedPersons()[name] || !f.Client.IsValid() ||
				f.AuthID != "staff" || strings.Contains(f.Reason, "planted") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestProviderName_HasNoSecret names providers by their URLs.
func TestProviderName_HasNoSecret(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]trafficpolicy.LoginConfig{
		"github":           {Kind: trafficpolicy.LoginOAuth, Provider: "github", IssuerURL: "https://ghe.example.com"},
		"idp.example.com":  {Kind: trafficpolicy.LoginOIDC, IssuerURL: "https://user:planted@idp.example.com/x"},
		"saml.example.com": {Kind: trafficpolicy.LoginSAML, IdPMetadataURL: "https://saml.example.com/m?key=planted"},
		"saml":             {Kind: trafficpolicy.LoginSAML, IdPMetadata: "<md>"},
	} {
		if got := providerName(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

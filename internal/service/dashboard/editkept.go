// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	keptInput    = "form_kept"    // a form that was sent without a sign-in, sealed
	accountInput = "form_account" // the ID of the account of a form

	maxKeptForm   = 384 << 10 // bytes of a form that is kept
	maxSignInForm = 640 << 10 // with a kept form, in base64
)

// keptOwner is whom a kept form belongs to: it is read again at the same path only.
func keptOwner(path string) string { return path + " form of a browser that was signed out" }

// keepForm answers the form of an editor that a browser has sent after its sign-in has ended. The
// page is the one that signs in; it holds the form, sealed, and the form is shown again afterwards.
// Each is counted as an attempt to sign in. reason is why the browser is not signed in.
func (s *server) keepForm(c *call, reason error) error {
	if s.opt.Seal == nil || s.opt.Unseal == nil || c.isRefresh() || c.Request.Method != http.MethodPost ||
		!isSignedOut(reason) || !s.attempts.Allow(s.opt.ClientIP(c.Request), s.opt.Clock()) ||
		c.readForm(maxKeptForm) != nil || !c.Request.PostForm.Has(baseInput) {
		return c.redirectToSignIn(reason)
	}
	path := c.Request.URL.Path
	sealed := s.opt.Seal(c.Request.PostForm.Encode(), keptOwner(path))
	return c.show(http.StatusUnauthorized, view{Page: "sign-in", Title: "Sign in",
		Data: signInForm{Return: path, Kept: base64.RawURLEncoding.EncodeToString(sealed)}})
}

// restoreForm puts a kept form in the place of the one that has signed in, if there is one: it is
// shown again, and changes nothing. Secrets that were typed with another key have to be typed
// again.
func (s *server) restoreForm(c *call) error {
	kept := c.Request.PostForm.Get(keptInput)
	if kept == "" || s.opt.Unseal == nil {
		return nil
	}
	broken := account.Errorf(account.CodeMalformed,
		"the form cannot be read; open the page again and send it from there")
	raw, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		return broken
	}
	text, err := s.opt.Unseal(raw, keptOwner(c.Request.URL.Path))
	if err != nil {
		return broken
	}
	form, err := url.ParseQuery(text)
	if err != nil {
		return broken
	}
	if err := checkFormAccount(c, form); err != nil {
		return err
	}
	form.Set("step", stepEdit)
	if _, err := s.unsealSecrets(c, form.Get(secretsInput)); err != nil {
		form.Del(secretsInput)
	}
	c.Request.PostForm, c.Request.Form = form, form
	return nil
}

// checkFormAccount returns CodeScope for a form that was opened with a key of another account: a
// browser may have signed in with another key since.
func checkFormAccount(c *call, form url.Values) error {
	if form.Has(accountInput) && form.Get(accountInput) != c.AccountID() {
		return account.Errorf(account.CodeScope,
			"the form is of another account; sign in with a key of that account, or open the page again")
	}
	return nil
}

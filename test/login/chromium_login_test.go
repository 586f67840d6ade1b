// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// signIn submits Dex's sign-in form.
func (c *tab) signIn(who person) {
	c.t.Helper()
	c.do("waiting for the provider's form", chromedp.WaitVisible(chromedp.CSS("input[name=password]")))
	c.waitPainted()
	c.do("filling the provider's form", chromedp.SendKeys(chromedp.CSS("input[name=login]"), who.email),
		chromedp.SendKeys(chromedp.CSS("input[name=password]"), who.password),
		chromedp.Click(chromedp.CSS("button[type=submit]")))
}

// waitPainted waits until the page is painted: the browser drops earlier key events.
func (c *tab) waitPainted() {
	c.t.Helper()
	c.wait(`performance.getEntriesByName("first-contentful-paint").length > 0`)
}

// openIdentities opens the dashboard's page of identities in a new profile.
func (a *tenant) openIdentities() *tab {
	a.Helper()
	c := chromium(a.TB)
	c.do("signing in to the dashboard", chromedp.Navigate("https://"+apiHost+"/ui/traffic-policy/identities"),
		chromedp.WaitVisible(chromedp.CSS("#key")))
	c.waitPainted()
	c.do("giving the key", chromedp.SendKeys(chromedp.CSS("#key"), a.apiKey),
		chromedp.Click(chromedp.CSS("button.primary")), chromedp.WaitVisible(chromedp.CSS("#q")))
	return c
}

// TestChromium_RevokesOIDCSession revokes, in the dashboard, a user who has pages with websockets
// open: the websockets close, the next page asks for the password, and other users stay logged in.
func TestChromium_RevokesOIDCSession(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := newProvider(t, "dex")
	s := a.site("chromium")
	s.serve(always(s.oidc(p, "oidc")))
	c, other := chromium(t), newBrowser(t)
	c.do("opening the page", chromedp.Navigate(s.url+"/app?tab=1"))
	if at := c.location(); !strings.HasPrefix(at, p.Issuer) {
		t.Fatalf("the browser is at %s", at)
	}
	c.signIn(alice)
	c.wait(`document.title == "ws hello"`)
	if at := c.location(); at != s.url+"/app?tab=1" {
		t.Errorf("the login ends at %s", at)
	}
	second := c.newTab()
	second.do("opening a second tab", chromedp.Navigate(s.url+"/app?tab=2"))
	second.wait(`document.title == "ws hello"`)
	if cookies, err := chromedp.Run(c.ctx, chromedp.Evaluate[string]("document.cookie")); err != nil || cookies != "" {
		t.Errorf("document.cookie is %q, %v", cookies, err)
	}
	other.signIn(other.visit(s.url+"/"), bob).echo(t)

	a.openIdentities().revokeByKeyboard(alice)
	c.wait(`document.title == "ws closed"`)
	second.wait(`document.title == "ws closed"`)
	c.do("going on", chromedp.Navigate(s.url+"/app?tab=1"))
	c.signIn(alice)
	c.wait(`document.title == "ws hello"`)
	if status := other.firstResponse(s.url + "/").status; status != http.StatusOK {
		t.Errorf("another person's session: %d", status)
	}
	c.do("logging out", chromedp.Navigate(s.loginURL("oidc", "logout")), chromedp.Click(chromedp.CSS("button")),
		chromedp.WaitVisible(chromedp.CSS("a")))
	if text, err := chromedp.Run(c.ctx, chromedp.Evaluate[string]("document.body.innerText")); err != nil ||
		!strings.Contains(text, "logged out") {
		t.Errorf("the page after the logout: %q, %v", text, err)
	}
}

// revokeByKeyboard finds the person by the search, and ends their sessions with the trash control
// of the row, without a mouse.
func (c *tab) revokeByKeyboard(who person) {
	c.t.Helper()
	c.waitPainted()
	c.do("searching", chromedp.SendKeys(chromedp.CSS("#q"), who.email))
	c.wait(
		`document.querySelectorAll("#live tbody tr").length == 1 && ` +
			`document.querySelector("#live tbody").innerText.includes("` + who.email + `")`)
	c.do("the trash control", chromedp.Focus(chromedp.CSS("#live tbody a[data-dialog]")), chromedp.KeyEvent(kb.Enter))
	c.wait(`document.querySelector("dialog[open] button.destroy") != null`)
	if text, err := chromedp.Run(c.ctx, chromedp.Text(chromedp.CSS("dialog[open]"))); err != nil ||
		!strings.Contains(text, "Alice Arnold") && !strings.Contains(text, who.email) {
		c.t.Errorf("the confirmation does not name the person: %q, %v", text, err)
	}
	c.do("confirming", chromedp.Focus(chromedp.CSS("dialog[open] button.destroy")), chromedp.KeyEvent(kb.Enter))
	c.wait(`document.querySelector("dialog[open]") == null && !document.body.innerText.includes("` + who.email + `")`)
}

// TestChromium_FinishesSAMLLogin logs in although Chromium sends no cookie of the flow with the
// provider's post.
func TestChromium_FinishesSAMLLogin(t *testing.T) {
	t.Parallel()
	p := env.provider("saml")
	s := newTenant(t).site("chromium")
	s.serve(always(s.saml(p, nil)))
	s.registerServiceProvider(p, "/")
	c := chromium(t)
	c.do("opening the page", chromedp.Navigate(s.url+"/app?saml=1"))
	c.do("waiting for the provider's form", chromedp.WaitVisible(chromedp.CSS("input[name=user]")))
	c.waitPainted()
	c.do("filling the provider's form", chromedp.SendKeys(chromedp.CSS("input[name=user]"), bob.email),
		chromedp.SendKeys(chromedp.CSS("input[name=password]"), bob.password),
		chromedp.Click(chromedp.CSS("input[type=submit]")))
	c.wait(`document.title == "ws hello"`)
	if at := c.location(); at != s.url+"/app?saml=1" {
		t.Errorf("the login ends at %s", at)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// signIn fills the page of Dex.
func (c *tab) signIn(who person) {
	c.t.Helper()
	c.do("filling the provider's form", chromedp.WaitVisible(chromedp.CSS("input[name=password]")), chromedp.SendKeys(chromedp.CSS("input[name=login]"), who.email),
		chromedp.SendKeys(chromedp.CSS("input[name=password]"), who.password), chromedp.Click(chromedp.CSS("button[type=submit]")))
}

// TestInARealBrowser is issue's story: a login, a page with a websocket, a revoke, the page sees it, the next page asks for the password, and the login works again.
func TestInARealBrowser(t *testing.T) {
	t.Parallel()
	a := newTenant(t)
	p := ownProvider(t, "dex")
	s := a.site("chromium")
	s.serve(always(s.oidc(p, "oidc")))
	c := chromium(t)
	c.do("opening the page", chromedp.Navigate(s.url+"/app?tab=1"))
	if at := c.location(); !strings.HasPrefix(at, p.Issuer) {
		t.Fatalf("the browser is at %s", at)
	}
	c.signIn(alice)
	c.wait(`document.title == "ws hello"`)
	if at := c.location(); at != s.url+"/app?tab=1" {
		t.Errorf("the login ends at %s", at)
	}
	second := c.another()
	second.do("opening a second tab", chromedp.Navigate(s.url+"/app?tab=2"))
	second.wait(`document.title == "ws hello"`)
	if cookies, err := chromedp.Run(c.ctx, chromedp.Evaluate[string]("document.cookie")); err != nil || cookies != "" {
		t.Errorf("scripts see %q, %v", cookies, err)
	}
	var users struct {
		Users []struct{ ID, Email string } `json:"application_users"`
	}
	if status := a.api("GET", "/app/users", nil, &users); status != http.StatusOK || len(users.Users) != 1 || users.Users[0].Email != alice.email {
		t.Fatalf("%d %+v", status, users)
	}
	if status := a.api("DELETE", "/app/users/"+users.Users[0].ID, nil, nil); status != http.StatusNoContent {
		t.Fatalf("revoking: %d", status)
	}
	c.wait(`document.title == "ws closed"`)
	second.wait(`document.title == "ws closed"`)
	c.do("going on", chromedp.Navigate(s.url+"/app?tab=1"))
	c.signIn(alice)
	c.wait(`document.title == "ws hello"`)
	c.do("logging out", chromedp.Navigate(s.at("oidc", "logout")), chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(chromedp.CSS("a")))
	if text, err := chromedp.Run(c.ctx, chromedp.Evaluate[string]("document.body.innerText")); err != nil || !strings.Contains(text, "logged out") {
		t.Errorf("the page says %q, %v", text, err)
	}
}

// TestSAMLInARealBrowser: Chromium sends no cookie of the flow with the provider's post, and the login ends well all the same.
func TestSAMLInARealBrowser(t *testing.T) {
	t.Parallel()
	p := world.provider("saml")
	s := newTenant(t).site("chromium")
	s.serve(always(s.saml(p, nil)))
	s.introduce(p, "/")
	c := chromium(t)
	c.do("opening the page", chromedp.Navigate(s.url+"/app?saml=1"))
	c.do("filling the provider's form", chromedp.SendKeys(chromedp.CSS("input[name=user]"), bob.email), chromedp.SendKeys(chromedp.CSS("input[name=password]"), bob.password),
		chromedp.Click(chromedp.CSS("input[type=submit]")))
	c.wait(`document.title == "ws hello"`)
	if at := c.location(); at != s.url+"/app?saml=1" {
		t.Errorf("the login ends at %s", at)
	}
}

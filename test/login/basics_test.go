// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestEndpoint_WithoutLogin serves every request without a login action, to both browsers.
func TestEndpoint_WithoutLogin(t *testing.T) {
	t.Parallel()
	s := newTenant(t).site("open").serve()
	b := newBrowser(t)
	if e := b.visit(s.url + "/x?y=1").echo(t); e.Host != s.host || e.URL != "/x?y=1" {
		t.Errorf("the upstream got %+v", e)
	}
	if _, status := b.websocket(s); status != 101 {
		t.Errorf("a websocket: %d", status)
	}
	c := chromium(t)
	c.do("opening the page", chromedp.Navigate(s.url+"/app"))
	c.wait(`document.title == "ws hello"`)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// requireChromium says that tests fail, rather than being skipped, where there is no Chromium.
const requireChromium = "FAIRLEAD_REQUIRE_CHROMIUM"

// theChromium is started by the first test that wants it, and shared: every test has a profile of its own in it.
var theChromium struct {
	sync.Mutex
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

// chromium returns a new tab in a new profile, and tabs in the same profile with another call of the func it returns.
func chromium(t *testing.T) (ctx context.Context, tab func() context.Context) {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv(requireChromium) != "" {
			t.Fatalf("%s is set, but: %v", requireChromium, err)
		}
		t.Skipf("no Chromium (hack/deps.sh installs it): %v", err)
	}
	theChromium.Lock()
	defer theChromium.Unlock()
	if theChromium.ctx == nil {
		startChromium()
	}
	if theChromium.err != nil {
		t.Fatal(theChromium.err)
	}
	open := func(parent context.Context, opts ...chromedp.ContextOption) context.Context {
		ctx, cancel := chromedp.NewContext(parent, opts...)
		t.Cleanup(cancel)
		ctx, cancel = context.WithTimeout(ctx, patience)
		t.Cleanup(cancel)
		return ctx
	}
	ctx = open(theChromium.ctx, chromedp.WithNewBrowserContext())
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("opening a tab: %v", err)
	}
	return ctx, func() context.Context { return open(ctx) }
}

func startChromium() {
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.Flag("no-sandbox", os.Getuid() == 0), chromedp.Flag("disable-gpu", true),
		chromedp.Flag("host-resolver-rules", fmt.Sprintf("MAP *.%s:443 %s", domain, world.at.HTTPS)),
		chromedp.Flag("ignore-certificate-errors-spki-list", world.certs.spki))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	theChromium.ctx = ctx
	theChromium.stop = func() { cancel(); stop() }
	theChromium.err = chromedp.Do(ctx)
}

// stopChromium ends it, if there is one.
func stopChromium() {
	theChromium.Lock()
	defer theChromium.Unlock()
	if theChromium.ctx == nil {
		return
	}
	_ = chromedp.Cancel(theChromium.ctx) // waits until the program is gone
	theChromium.stop()
}

// do carries out what a person does in the tab.
func do(t *testing.T, tab context.Context, what string, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		where, _ := chromedp.Run(tab, chromedp.Location())
		t.Fatalf("%s, at %s: %v", what, where, err)
	}
}

// waitFor waits until the expression is true in the tab's page, across navigations.
func waitFor(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	if _, err := chromedp.Run(tab, chromedp.Poll[bool](expression)); err != nil {
		where, _ := chromedp.Run(tab, chromedp.Location())
		body, _ := chromedp.Run(tab, chromedp.Evaluate[string]("document.documentElement.outerHTML"))
		t.Fatalf("waiting for %s, at %s: %v\n%.1000s", expression, where, err, body)
	}
}

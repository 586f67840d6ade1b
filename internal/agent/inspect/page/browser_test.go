// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// chromium starts one browser for a test that FAIRLEAD_REQUIRE_CHROMIUM=1 asks for.
func chromium(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("FAIRLEAD_REQUIRE_CHROMIUM") != "1" && *screenshots == "" {
		t.Skip("only with FAIRLEAD_REQUIRE_CHROMIUM=1")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is missing; hack/deps.sh installs it")
	}
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(testTimeout),
		// Without a mouse it is a touch device; a test that wants one says so.
		chromedp.Flag("blink-settings",
			"primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4")}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), flags...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	within, done := context.WithTimeout(ctx, 5*testTimeout)
	t.Cleanup(done)
	return within
}

// testTimeout limits how long a test waits for a result that should come at once.
const testTimeout = 3 * time.Minute

// tab is a page of a browser.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// sendCommand sends the browser a command of the protocol.
func sendCommand[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// size sets the size of the page, and the theme: "light" or "dark".
func (b *tab) size(width, height int64, theme string) {
	b.t.Helper()
	sendCommand(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height,
			DeviceScaleFactor: 1})
	sendCommand(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// eval runs a script and returns its value.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits until the script's value is true. A script that throws is not true yet: the browser
// may be between two pages.
func (b *tab) until(what, script string) {
	b.t.Helper()
	attempt := "(() => { try { return String(!!(" + script + ")) } catch (e) { return String(e) } })()"
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		got := eval[string](b, attempt)
		if got == "true" {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within %s: %s (%s); the browser is at %s", testTimeout, what, got,
				eval[string](b, "location.href + ' ' + document.body?.innerText"))
		}
	}
}

// press presses keys. The browser throws away those that come before it has painted the page.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.until("that the page is painted", "performance.getEntriesByName('first-contentful-paint').length > 0")
	b.do(chromedp.KeyEvent(keys))
}

// scripts turns scripts on or off.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	sendCommand(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

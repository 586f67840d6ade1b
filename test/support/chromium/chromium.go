// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chromium drives a browser for tests of our web pages: it opens them in sizes and themes,
// waits for what scripts show, checks what screen readers are told, and takes pictures.
//
// What comes in: a test and the address of its pages. Whom it hands over to: the program chromium,
// which hack/deps.sh installs.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Timeout limits how long a test waits for a result that should come at once. A browser lives for
// five times as long.
const Timeout = 3 * time.Minute

// Start starts one browser for a test and returns its context, which ends with the test. Unless
// wanted, the test is skipped without FAIRLEAD_REQUIRE_CHROMIUM=1.
func Start(t *testing.T, wanted bool) context.Context {
	t.Helper()
	if os.Getenv("FAIRLEAD_REQUIRE_CHROMIUM") != "1" && !wanted {
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
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(Timeout),
		// Without a mouse it is a touch device; a test that wants one says so.
		chromedp.Flag("blink-settings",
			"primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4")}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), flags...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	within, done := context.WithTimeout(ctx, 5*Timeout)
	t.Cleanup(done)
	return within
}

// Localhost returns the URL of a server at 127.0.0.1 under the name localhost, for which browsers
// keep secure cookies without TLS.
func Localhost(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) }

// Tab is a page of a browser. Its methods end the test if the browser refuses.
type Tab struct {
	T    *testing.T
	Ctx  context.Context // of Start
	Base string          // what paths are appended to
}

// Do carries out steps.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	must.Succeed(b.T, chromedp.Do(b.Ctx, steps...))
}

// Call sends the browser a command of the DevTools protocol and returns its answer.
func Call[P, R any](b *Tab, command cdp.Command[P, R], params P) R {
	b.T.Helper()
	result, err := chromedp.Call(b.Ctx, command, params)
	must.Succeed(b.T, err)
	return result
}

// Open goes to a path and waits until the page is loaded.
func (b *Tab) Open(path string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(b.Base + path))
}

// Resize sets the size of the page in pixels, and the theme: "light" or "dark".
func (b *Tab) Resize(width, height int64, theme string) {
	b.T.Helper()
	Call(b, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// EnableScripts turns scripts on or off.
func (b *Tab) EnableScripts(on bool) {
	b.T.Helper()
	Call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// Eval runs a script and returns its value.
func Eval[T any](b *Tab, script string) T {
	b.T.Helper()
	v, err := chromedp.Run(b.Ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.T.Fatalf("%s: %v", script, err)
	}
	return v
}

// WaitUntil waits until the script's value is true. A script that throws, or that the browser drops
// because it goes to another page, is not true yet.
func (b *Tab) WaitUntil(what, script string) {
	b.T.Helper()
	attempt := "(() => { try { return String(!!(" + script + ")) } catch (e) { return String(e) } })()"
	for end := time.Now().Add(Timeout); ; time.Sleep(20 * time.Millisecond) {
		got, err := chromedp.Run(b.Ctx, chromedp.Evaluate[string](attempt))
		if got == "true" {
			return
		}
		if b.Ctx.Err() != nil || time.Now().After(end) {
			b.T.Fatalf("not within %s: %s (%s, %v); the browser is at %s", Timeout, what, got, err,
				Eval[string](b, "location.href + ' ' + document.body?.innerText"))
		}
	}
}

// Press presses keys. The browser throws away those that come before it has painted the page.
func (b *Tab) Press(keys string) {
	b.T.Helper()
	b.WaitUntil("that the page is painted", "performance.getEntriesByName('first-contentful-paint').length > 0")
	b.Do(chromedp.KeyEvent(keys))
}

// PressEnter presses the key as a keyboard does: a script that handles the key leaves no line break
// to the browser. Keys of chromedp are two events, and the browser takes both.
func (b *Tab) PressEnter() {
	b.T.Helper()
	enter := input.DispatchKeyEventParams{Type: "keyDown", Key: "Enter", Code: "Enter", Text: "\r",
		WindowsVirtualKeyCode: 13, NativeVirtualKeyCode: 13}
	Call(b, input.DispatchKeyEvent, enter)
	enter.Type, enter.Text = "keyUp", ""
	Call(b, input.DispatchKeyEvent, enter)
}

// Fill types a text into the field with the id, in the place of what it holds.
func (b *Tab) Fill(id, text string) {
	b.T.Helper()
	field := "document.getElementById('" + id + "')"
	Eval[bool](b, "("+field+".focus(), "+field+".select(), true)")
	b.Press(text)
	if got := Eval[string](b, field+".value"); got != text {
		b.T.Fatalf("typing %q into %s made %q", text, id, got)
	}
}

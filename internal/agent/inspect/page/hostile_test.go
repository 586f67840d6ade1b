// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// watchPolicy makes pages count what their Content-Security-Policy refuses.
func watchPolicy(b *chromium.Tab) {
	b.T.Helper()
	script := chromium.Call(b, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.violations = [];
			addEventListener("securitypolicyviolation", (e) =>
				violations.push(e.violatedDirective + " " + e.sample));`})
	b.T.Cleanup(func() {
		_, _ = chromedp.Call(b.Ctx, cdppage.RemoveScriptToEvaluateOnNewDocument, // the browser may be gone
			cdppage.RemoveScriptToEvaluateOnNewDocumentParams(script))
	})
}

// requireHarmless checks that nothing of the hostile text has run, or has become an element.
func requireHarmless(t *testing.T, b *chromium.Tab, path string) {
	t.Helper()
	got := chromium.Eval[string](b, `[String(window.pwned), document.querySelectorAll("script").length,
		document.querySelectorAll("style, iframe, object, base, body a[href^='javascript:']").length,
		document.querySelectorAll("[onerror], [onload], [onfocus]").length,
		document.body.innerText.includes("\u202e"), violations.join()].join(" ")`)
	if got != "undefined 1 0 0 false " {
		t.Errorf("%s: what ran, scripts, other elements, handlers, hidden characters, refused by the policy: %s", path,
			got)
	}
}

func testHostileText(t *testing.T, b *chromium.Tab, s *site) {
	watchPolicy(b)
	s.rec.add(samples()...)
	for _, path := range samplePaths() {
		b.Open(path)
		if path == "/" {
			evil := samples()[6]
			evil.ID = "evil-live"
			s.rec.add(evil) // through the script
			b.WaitUntil("the row", `document.querySelector("[data-key=evil-live]")`)
		}
		requireHarmless(t, b, path)
	}
	b.Open("/?text=" + url.QueryEscape(hostile) + "&endpoint=" + url.QueryEscape(hostile) + "&method=" +
		url.QueryEscape(hostile))
	requireHarmless(t, b, "filters")
}

// hostileExchanges are requests and answers with hostile text in every place that HTTP leaves for
// text, by what they are about.
func hostileExchanges() map[string][2]string {
	line := strings.ReplaceAll(hostile, " ", "+")
	with := func(contentType, body string) string {
		return fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
	}
	answer := func(contentType, body string) string {
		return "HTTP/1.1 200 " + hostile + "\r\n" + with(contentType, body)
	}
	post := "POST /" + line + "?" + line + "=" + line + " HTTP/1.1\r\nHost: " + line + "\r\n"
	svg := `<svg xmlns="http://www.w3.org/2000/svg"><script>window.pwned=1</script></svg>`
	parts := "--x\r\nContent-Disposition: form-data; name=\"" + strings.ReplaceAll(hostile, `"`, `'`) +
		"\"; filename=\"" +
		strings.ReplaceAll(hostile, `"`, `'`) + "\"\r\nContent-Type: text/html\r\n\r\n" + hostile + "\r\n--x--\r\n"
	frame := "\x81" + string(rune(len("<script>window.pwned=1</script>"))) + "<script>window.pwned=1</script>"
	return map[string][2]string{
		"headers": {"GET /" + line + " HTTP/1.1\r\nHost: a\r\nX-" + line + ": " + hostile + "\r\nCookie: " + hostile +
			"\r\nReferer: javascript:window.pwned=1\r\nX-Forwarded-For: " + hostile + "\r\n\r\n",
			"HTTP/1.1 302 Found\r\nLocation: javascript:window.pwned=1\r\nX-A: " + hostile + "\r\n" +
				"Refresh: 0; url=javascript:window.pwned=1\r\nContent-Length: 0\r\n\r\n"},
		"method": {"<SCRIPT>window.pwned=1</SCRIPT> / HTTP/1.1\r\nHost: a\r\n\r\n", answer("text/html", hostile)},
		"form": {post + with("application/x-www-form-urlencoded",
			url.QueryEscape(hostile)+"="+url.QueryEscape(hostile)),
			answer("text/html", "<!doctype html>"+hostile)},
		"json": {post + with("application/json", `{"<script>window.pwned=1</script>":"`+line+`"}`),
			answer("image/svg+xml", svg)},
		"multipart": {post + with("multipart/form-data; boundary=x", parts), answer(hostile, hostile)},
		"png":       {post + with("image/png", svg), answer("image/png", "\x89PNG\r\n\x1a\n"+hostile)},
		"encoding": {post + "Content-Encoding: " + hostile + "\r\n" + with("text/plain", hostile),
			"HTTP/1.1 200 OK\r\nContent-Encoding: " + hostile + ", br\r\n" + with("text/html", hostile)},
		"events": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: " + hostile + "\ndata: " + hostile +
				"\n\n"},
		"websocket": {"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + frame},
		"no HTTP": {hostile + "\r\n\r\n", hostile + "\r\n"},
	}
}

// TestInspector_RunsNothingRecorded feeds a Recorder with hostile bytes and opens every page,
// export and picture of what it made of them, with and without secrets.
func TestInspector_RunsNothingRecorded(t *testing.T) {
	ctx := chromium.Start(t, false)
	r := inspect.New()
	t.Cleanup(r.Close)
	r.SetEndpoint(inspect.Endpoint{ID: hostile, URL: hostile, Name: hostile, AlsoAt: hostile, Upstream: hostile,
		Online: true})
	b := &chromium.Tab{T: t, Ctx: ctx, Base: realSite(t, r)}
	t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) }) // ends the streams
	watchPolicy(b)
	b.Resize(1280, 720, "light")
	b.Open("/")
	requireHarmless(t, b, "the empty list")
	info := inspect.Info{EndpointID: hostile, EndpointURL: hostile, Caller: inspect.Caller{IP: hostile, Pod: hostile,
		Namespace: hostile, ServiceAccount: hostile, Cluster: hostile, Person: hostile}}
	all := hostileExchanges()
	for _, e := range all {
		record(r, info, e[0], e[1])
	}
	wait.Until(t, "exchanges", func() bool { return len(r.List(inspect.Filter{})) >= len(all) })
	b.WaitUntil("the rows", fmt.Sprintf(`document.querySelectorAll("#requests tbody tr").length >= %d`, len(all)))
	requireHarmless(t, b, "the live list")
	for _, e := range r.List(inspect.Filter{}) {
		openAll(b, t, e)
	}
	// What has held: the policy refuses what a page could otherwise do.
	b.Open("/")
	if !chromium.Eval[bool](b, `(() => {
		try { document.body.innerHTML = "<img src=x onerror=window.pwned=1>"; } catch { return true; }
	})() === true`) {
		t.Error("a page accepts markup")
	}
	b.WaitUntil("the report", `violations.join().includes("require-trusted-types-for")`)
}

// openAll opens every page of an exchange.
func openAll(b *chromium.Tab, t *testing.T, e *inspect.Exchange) {
	t.Helper()
	path := exchangePath(e.ID)
	for _, page := range []string{"", "/edit", "/curl", "/none"} {
		b.Open(path + page)
		requireHarmless(t, b, path+page+" of "+e.Request.URL)
	}
	b.Open(path)
	b.Press("")
	if !chromium.Eval[bool](b, `!!document.querySelector("button[value=all]")`) {
		return
	}
	b.Do(chromedp.Click(chromedp.CSS("button[value=all]")))
	b.WaitUntil("the secrets", `document.readyState === "complete" && !document.querySelector("button[value=all]")`)
	requireHarmless(t, b, path+" with its secrets")
}

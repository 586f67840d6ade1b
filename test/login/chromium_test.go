// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// requireChromium is the variable that makes tests fail, instead of being skipped, where there is
// no Chromium.
const requireChromium = "FAIRLEAD_REQUIRE_CHROMIUM"

// sharedChromium is started by the first test that needs it. Each test has a profile of its own.
var sharedChromium struct {
	sync.Mutex
	ctx  context.Context
	stop context.CancelFunc
	err  error

	serviceKey string
}

// tab is a tab of Chromium.
type tab struct {
	t   testing.TB
	ctx context.Context
}

// chromium opens a tab in a new profile.
func chromium(t testing.TB) *tab {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv(requireChromium) != "" {
			t.Fatalf("%s is set, but: %v", requireChromium, err)
		}
		t.Skipf("no Chromium (hack/deps.sh installs it): %v", err)
	}
	sharedChromium.Lock()
	defer sharedChromium.Unlock()
	if sharedChromium.ctx == nil {
		sharedChromium.serviceKey = serviceKey(t)
		startChromium()
	}
	if sharedChromium.err != nil {
		t.Fatal(sharedChromium.err)
	}
	return openTab(sharedChromium.ctx, t, chromedp.WithNewBrowserContext())
}

func openTab(parent context.Context, t testing.TB, opts ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, opts...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, maxWait)
	t.Cleanup(cancel)
	c := &tab{t, ctx}
	c.do("opening a tab")
	return c
}

// newTab opens a tab in the same profile.
func (c *tab) newTab() *tab {
	c.t.Helper()
	return openTab(c.ctx, c.t)
}

// serviceKey returns the digest of the service's TLS key, for Chromium's flags.
func serviceKey(t testing.TB) string {
	t.Helper()
	tlsConfig, err := trust.Options{CASHA256: env.at.CAFingerprint}.ClientConfig()
	must.Succeed(t, err)
	conn, err := tls.Dial("tcp", env.at.Service.String(), tlsConfig)
	must.Succeed(t, err)
	defer conn.Close()
	digest := sha256.Sum256(conn.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(digest[:])
}

func startChromium() {
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.Flag("no-sandbox", os.Getuid() == 0),
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("host-resolver-rules", fmt.Sprintf("MAP *.%s:443 %s,MAP %s %s", domain, env.at.HTTPS, apiHost,
			env.at.Service)),
		chromedp.Flag("ignore-certificate-errors-spki-list", env.certs.spki+","+sharedChromium.serviceKey))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	sharedChromium.ctx = ctx
	sharedChromium.stop = func() { cancel(); stop() }
	sharedChromium.err = chromedp.Do(ctx)
}

// stopChromium stops Chromium if it was started.
func stopChromium() {
	sharedChromium.Lock()
	defer sharedChromium.Unlock()
	if sharedChromium.ctx == nil {
		return
	}
	_ = chromedp.Cancel(sharedChromium.ctx) // waits until the program is gone
	sharedChromium.stop()
}

// do runs the actions in the tab.
func (c *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c.ctx, steps...); err != nil {
		c.t.Fatalf("%s, at %s: %v", what, c.location(), err)
	}
}

func (c *tab) location() string {
	where, _ := chromedp.Run(c.ctx, chromedp.Location())
	return where
}

// wait waits until the expression is true in the tab's page, across navigations.
func (c *tab) wait(expression string) {
	c.t.Helper()
	for {
		_, err := chromedp.Run(c.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond),
			chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		if c.ctx.Err() != nil {
			c.t.Fatalf("waiting for %s: %v", expression, err)
		}
	}
}

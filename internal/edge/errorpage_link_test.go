// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestWriteErrorPage_LinksAddresses checks that an error page links the address that its message
// names, and no other.
func TestWriteErrorPage_LinksAddresses(t *testing.T) {
	t.Parallel()
	for msg, want := range map[string]string{
		"It has ended. Open https://a.example.com:8443 to begin again.": `<p>It has ended. Open <a href="https://a.example.com:8443">https://a.example.com:8443</a> to begin again.</p>`,
		"Open https://a.example.com/b?c=d.":                             `<p>Open <a href="https://a.example.com/b?c=d">https://a.example.com/b?c=d</a>.</p>`,
		"https://a.example.com is offline.":                             `<p>https://a.example.com is offline.</p>`,
		`Open https://a"><script>x</script> now.`:                       `Open <a href="https://a%22%3e%3cscript%3ex%3c/script%3e">https://a&#34;&gt;&lt;script&gt;x&lt;/script&gt;</a> now.`,
		"Open javascript:x() now.":                                      `<p>Open javascript:x() now.</p>`,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		if WriteErrorPage(w, r, http.StatusForbidden, account.CodeLoginFailed, msg); !strings.Contains(w.Body.String(),
			want) {
			t.Errorf("%s\n%s", msg, w.Body)
		}
		r.Header.Set("Accept", "*/*")
		w = httptest.NewRecorder()
		if WriteErrorPage(w, r, http.StatusForbidden, account.CodeLoginFailed,
			"Open https://a now."); !strings.Contains(
			w.Body.String(), `"msg":"Open https://a now."`) {
			t.Errorf("JSON: %s", w.Body)
		}
	}
}

// TestWriteErrorPage_HasStrictContentSecurityPolicy checks that browsers apply the page's own
// style, by its hash, and nothing else, and show it in no frame.
func TestWriteErrorPage_HasStrictContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"text/html", "application/json"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		WriteErrorPage(w, r, http.StatusBadGateway, account.CodeEndpointOffline, "It is offline.")
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", accept, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", accept, policy)
		}
		if _, rest, found := strings.Cut(w.Body.String(), "<style>"); found {
			style, _, _ := strings.Cut(rest, "</style>")
			digest := sha256.Sum256([]byte(style))
			if !strings.Contains(policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(digest[:])+"'") {
				t.Errorf("the policy %q refuses the style", policy)
			}
		}
	}
}

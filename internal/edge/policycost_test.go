// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestEdge_RefusesRequestTooCostlyForPolicy checks that a request for which the policy takes too
// much work gets a page with its code, in place of a response that is already there. The rule is
// for the log, not for the client.
func TestEdge_RefusesRequestTooCostlyForPolicy(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Secret", "yes")
		_, _ = io.WriteString(w, strings.Repeat("secret", 10_000))
	}))
	t.Cleanup(up.Close)
	for _, phase := range []string{"on_http_request", "on_http_response"} {
		var logged bytes.Buffer
		e := newEdge(t, dialing(new(leaves).add(static(up.Listener.Addr().String()))), func(o *Options) {
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		})
		ep := cloudEndpoint(phase+`:
- name: slow one
  expressions: ["req.url.path.matches('(.*a.*b.*c.*d){8}z')"]
  actions: [{type: remove-headers, config: {headers: [a]}}]
`, "b")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", "/"+strings.Repeat("abcd/", 10_000), nil), ep, ClientInfo{})
		code := w.Header().Get(account.CodeHeader)
		if w.Code != 500 || code != string(account.CodePolicyCost) || strings.Contains(w.Body.String(), "slow one") {
			t.Errorf("%s: %d %s %.200s", phase, w.Code, code, w.Body)
		}
		if w.Header().Get("Secret") != "" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the response got through: %v %.200s", phase, w.Header(), w.Body)
		}
		if text := logged.String(); !strings.Contains(text, `rule="slow one"`) ||
			!strings.Contains(text, "endpoint=ep-1") {
			t.Errorf("%s: logged %q", phase, text)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/framingtest"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestServer_AnswersHalfClosedClient checks that a client that closes its sending side after its
// request gets its answer, also with TLS, where close_notify is that.
func TestServer_AnswersHalfClosedClient(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, func(o *Options) {
		o.Handler = serveFunc(func(rw http.ResponseWriter, r *http.Request, _ *account.Endpoint, _ Client) {
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond): // the server has read the end by now
				_, _ = io.WriteString(rw, "answer")
			}
		})
	})
	for host, c := range map[string]net.Conn{"plain.example.com": w.dial(w.http),
		"app.example.com": w.dialTLS("app.example.com")} {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		must.Succeed(t, c.(interface{ CloseWrite() error }).CloseWrite())
		if all, _ := framingtest.Answers(c); len(all) != 1 || !strings.Contains(all[0], "answer") {
			t.Errorf("%s: %q", host, all)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/framingtest"
)

// TestPublic_RefusesAmbiguousFraming holds the table on the plain listener and, where the bytes are
// HTTP/1 inside TLS, on the other one.
func TestPublic_RefusesAmbiguousFraming(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for name, c := range framingtest.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framingtest.Expect(t, w.dial(w.http), c.Send, c.Want)
			secure := strings.ReplaceAll(c.Send, "plain.example.com", "app.example.com")
			framingtest.Expect(t, w.dialTLS("app.example.com", "http/1.1"), secure, c.Want)
		})
		if len(c.Send) <= 1000 {
			t.Run(name+", byte by byte", func(t *testing.T) {
				t.Parallel()
				framingtest.ExpectByteByByte(t, w.dial(w.http), c.Send, c.Want)
			})
		}
	}
}

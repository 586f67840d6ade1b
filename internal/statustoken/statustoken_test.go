// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package statustoken

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestValid_AcceptsTokenOfPodOnly(t *testing.T) {
	t.Parallel()
	const uid, pod = "0a7e1c1e-8f0c-4a43-9d2f-4f6f3f0b7d11", "forwarder-one"
	token := Derive(uid, pod)
	for name, c := range map[string]struct {
		header, query string
		want          bool
	}{
		"header":                 {"Bearer " + token, "", true},
		"query":                  {"", "?token=" + token, true},
		"header before query":    {"Bearer x", "?token=" + token, false},
		"another scheme":         {"Basic " + token, "", false},
		"nothing":                {"", "", false},
		"empty":                  {"Bearer ", "?token=", false},
		"the UID itself":         {"Bearer " + uid, "", false},
		"another pod":            {"Bearer " + Derive(uid, "forwarder-two"), "", false},
		"another installation":   {"Bearer " + Derive("1"+uid[1:], pod), "", false},
		"cut off":                {"Bearer " + token[:40], "", false},
		"with something after":   {"Bearer " + token + "0", "", false},
		"proxied with its watch": {"", "?watch=true&token=" + token, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/status"+c.query, http.NoBody)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		if got := Valid(r, token); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDerive_EmptyWithoutOperatorOrPod checks that no request is valid while either is unknown.
func TestDerive_EmptyWithoutOperatorOrPod(t *testing.T) {
	t.Parallel()
	for _, token := range []string{Derive("", "pod"), Derive("uid", "")} {
		r := httptest.NewRequest(http.MethodGet, "/status", http.NoBody)
		if SetHeader(r, token); token != "" || Valid(r, token) {
			t.Errorf("token %q is valid", token)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package hsts

import (
	"net/http"
	"testing"
)

func TestSet(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"fairlead.example.com": headerValue, "Fairlead.Example.com:8443": headerValue, "notlocalhost": headerValue,
		"localhost": "", "LOCALHOST.:8443": "", "app.localhost:443": "", "127.0.0.1": "", "127.0.0.1:8443": "",
		"[::1]:8443": "", "[::1]": "", "": "",
	} {
		h := http.Header{}
		if Set(h, host); h.Get("Strict-Transport-Security") != want {
			t.Errorf("%q: %v, want %q", host, h, want)
		}
	}
}

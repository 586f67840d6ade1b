// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestValidateHTTPOptions_ChecksHostMode(t *testing.T) {
	t.Parallel()
	for mode, ok := range map[string]bool{
		"passthrough": true, "rewrite": true, "example.com": true, "example.com:8080": true, "my_host": true,
		"10.0.0.1": true, "10.0.0.1:80": true, "[::1]:80": true,
		"": true, "a b": false, "a/b": false, "a:b": false, "a:0": false, "a:70000": false, "a\r\nb": false,
		"ä.example": false, "http://a": false,
		strings.Repeat("a", 254): false,
	} {
		if got := account.ValidateHTTPOptions("http", "http1", mode) == nil; got != ok {
			t.Errorf("%q: %v, want %v", mode, got, ok)
		}
	}
}

func TestValidateHTTPOptions_RefusesHTTPOptionsOfTCP(t *testing.T) {
	t.Parallel()
	if err := account.ValidateHTTPOptions("tcp", "", account.HostPassthrough); err != nil {
		t.Error(err)
	}
	if got := len(account.FieldsOf(account.ValidateHTTPOptions("tcp", "http1", account.HostRewrite))); got != 2 {
		t.Errorf("%d broken rules, want 2", got)
	}
}

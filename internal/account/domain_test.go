// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestParseDomainPattern_NormalisesAndRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{"Example.COM": "example.com", "*.Example.com": "*.example.com",
		"*.test": "*.test", "a.b.c.d": "a.b.c.d",
		"xn--bcher-kva.example": "xn--bcher-kva.example"} {
		if got, err := account.ParseDomainPattern(raw); err != nil || got != want {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"", "*", "*.", "com", ".com", "example.com.", "*.*.com", "a.*.com", "*example.com",
		"https://example.com", "example.com:443", "bücher.example",
		"10.0.0.1", "*.1", "*.internal", "a.internal", "a_b.com", "-a.com", "a b.com", "example.com/", "[::1]",
		"*." + strings.Repeat("a.", 130) + "com", "a\x00.com"} {
		got, err := account.ParseDomainPattern(raw)
		fields := account.FieldsOf(err)
		if account.CodeOf(err) != account.CodeInvalid || len(fields) != 1 || fields[0].Field != "pattern" {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	if got := account.DomainPatterns("a.b.example.com"); !slices.Equal(got,
		[]string{"a.b.example.com", "*.b.example.com", "*.example.com", "*.com"}) {
		t.Errorf("patterns that cover a host: %q", got)
	}
}

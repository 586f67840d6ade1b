// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// FuzzResourceVersion: what is read is written the same.
func FuzzResourceVersion(f *testing.F) {
	for _, seed := range []string{"7-1042", "0-0", "", "-", "1-2-3", "01-2",
		"9223372036854775807-9223372036854775808"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := account.ParseResourceVersion(text); err == nil && v.String() != text {
			t.Fatalf("%q is read as %s", text, v)
		}
	})
}

// FuzzACL: a rule admits what the regular expression of its pattern does, and a normal rule is its
// own normal form.
func FuzzACL(f *testing.F) {
	f.Add("http://*.demo", "http://a.demo")
	f.Add("*a*ab*", "aab")
	f.Add("a*a", "a")
	f.Add("**", "")
	f.Fuzz(func(t *testing.T, pattern, url string) {
		acl := account.ACL{"bind:" + pattern}
		want := regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(strings.ToValidUTF8(pattern, "?")),
			`\*`,
			`.*`) + `$`)
		if strings.ToValidUTF8(pattern+url, "") == pattern+url && acl.MayBind(url) != want.MatchString(url) {
			t.Fatalf("%q admits %q: %t", pattern, url, acl.MayBind(url))
		}
		normal, err := account.NormaliseACL(acl)
		if err != nil {
			return
		}
		if again, err := account.NormaliseACL(normal); err != nil || len(again) != 1 || again[0] != normal[0] {
			t.Fatalf("%q is %q, which is %q, %v", pattern, normal, again, err)
		}
	})
}

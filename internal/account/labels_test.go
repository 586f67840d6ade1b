// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestACL_AdmitsLabels checks that only bind:* admits both labels and URLs.
func TestACL_AdmitsLabels(t *testing.T) {
	t.Parallel()
	api := map[string]string{"app": "api", "site": "a"}
	for _, c := range []struct {
		acl    []string
		labels map[string]string
		want   bool
	}{
		{[]string{"bind:*"}, api, true},
		{[]string{"bind:*=*"}, api, true},
		{[]string{"bind:app=api"}, api, false}, // every label needs a rule
		{[]string{"bind:app=api", "bind:site=*"}, api, true},
		{[]string{"bind:app=api"}, map[string]string{"app": "api"}, true},
		{[]string{"bind:app=api"}, map[string]string{"app": "API"}, false},
		{[]string{"bind:App=API"}, map[string]string{"App": "API"}, true},
		{[]string{"bind:app=a*"}, map[string]string{"app": "api"}, true},
		{[]string{"bind:a*=api"}, map[string]string{"app": "api"}, true},
		{[]string{"bind:url=http://*"}, map[string]string{"url": "http://x"}, true},
		{[]string{"bind:http://*"}, map[string]string{"http": "x"}, false},
		{[]string{"bind:*.demo"}, map[string]string{"app": "x.demo"}, false},
		{[]string{"bind:**"}, map[string]string{"app": "x"}, false},
		{[]string{"connect:*"}, map[string]string{"app": "x"}, false},
	} {
		acl, err := account.NormaliseACL(c.acl)
		if err != nil {
			t.Fatalf("%s: %v", c.acl, err)
		}
		if got := acl.MayBindLabels(c.labels); got != c.want {
			t.Errorf("%s admits %v: %t", c.acl, c.labels, got)
		}
	}
	acl, err := account.NormaliseACL([]string{"bind:*=*", "bind:app=*"})
	if err != nil || acl.MayBind("http://a.b") {
		t.Errorf("%v admits a URL, %v", acl, err)
	}
	for _, bad := range []string{"bind:=x", "bind:app=", "bind:a=b=c", "bind:a,b=c", "bind:http://a.b?x=1",
		"bind:*?x=\"",
		"connect:a=b"} {
		if got, err := account.NormaliseACL([]string{bad}); account.CodeOf(err) != account.CodeInvalid {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

func TestHasLabels_MatchesAllWanted(t *testing.T) {
	t.Parallel()
	has := map[string]string{"a": "1", "b": ""}
	for _, c := range []struct {
		wanted map[string]string
		want   bool
	}{{nil, true}, {has, true}, {map[string]string{"a": "1"}, true}, {map[string]string{"a": "2"}, false},
		{map[string]string{"c": ""}, false}} {
		if got := account.HasLabels(has, c.wanted); got != c.want {
			t.Errorf("%v: %t", c.wanted, got)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"strings"
	"testing"
)

func TestParseServiceLabels(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "team=web", "a=,example.com/b.c=D_1-2"} {
		labels, err := ParseServiceLabels(text)
		if got := FormatServiceLabels(labels); err != nil || got != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"team": "no KEY=VALUE", "=web": "no KEY=VALUE", "a=b=c": "no KEY=VALUE", "a=b,": "no KEY=VALUE",
		"-a=b": "no KEY=VALUE", "A.b/c=d": "no KEY=VALUE", "a=b c": "no KEY=VALUE",
		"a=" + strings.Repeat("x", 64): "no KEY=VALUE", "a=b,a=c": "twice",
		"a=,b=,c=,d=,e=,f=,g=,h=,i=,j=,k=,l=,m=,n=,o=,p=,q=": "at most 16",
	} {
		_, err := ParseServiceLabels(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

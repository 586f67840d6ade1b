// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// domainRefusals are command lines that fail while *.example.com is granted to default and
// shop.example.net to team-a: the exit code, and texts of the error.
var domainRefusals = map[string]struct {
	code  int
	texts []string
}{
	"domain grant default":                     {2, []string{"PATTERN"}},
	"domain grant no-such a.test":              {2, []string{"ACCOUNT", "no-such", "team-a"}},
	"domain grant default https://a.test":      {2, []string{"pattern", "https://a.test", "*.example.com"}},
	"domain grant default *":                   {2, []string{"pattern"}},
	"domain grant default a.internal":          {2, []string{"pattern"}},
	"domain grant team-a x.example.com":        {1, []string{"*.example.com", "default", "revoke"}},
	"domain grant team-a *.com":                {1, []string{"*.example.com", "default"}},
	"domain revoke team-a *.example.com":       {1, []string{"*.example.com", "not granted"}},
	"domain revoke default never.test":         {1, []string{"never.test"}},
	"domain list a b":                          {2, []string{"ACCOUNT"}},
	"domain list no-such":                      {2, []string{"no-such"}},
	"domain list -o xml":                       {2, []string{"--output"}},
	"--public-https-addr :0":                   {2, []string{"--public-https-addr", "--public-tls-cert"}},
	"--public-tls-cert /nowhere.crt":           {2, []string{"--public-tls-key"}},
	"--proxy-protocol --public-http-addr :0":   {2, []string{"--proxy-protocol", "--trusted-proxies"}},
	"--public-http-addr 80":                    {2, []string{"--public-http-addr", "HOST:PORT"}},
	"--trusted-proxies x --public-http-addr=:": {2, []string{"--trusted-proxies", "10.0.0.0/8"}},
}

func TestDomain_GrantListRevoke(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, stop := served(t, dir)
	ok(t, "account", "create", "team-a", "--data-dir", dir)
	if out, _ := ok(t, "domain", "grant", "default", "*.Example.com", "--data-dir", dir); !strings.Contains(out,
		"*.example.com granted to account default: every host below example.com") {
		t.Errorf("granting printed %q", out)
	}
	ok(t, "domain", "grant", "team-a", "shop.example.net", "--data-dir", dir)
	out, _ := ok(t, "domain", "list", "--data-dir", dir)
	for _, text := range []string{"*.example.com", "default", "shop.example.net", "team-a"} {
		if !strings.Contains(out, text) {
			t.Errorf("the list lacks %s:\n%s", text, out)
		}
	}
	var list []domainJSON
	out, _ = ok(t, "domain", "list", "team-a", "-o", "json", "--data-dir", dir)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 ||
		list[0].Pattern != "shop.example.net" ||
		list[0].Account != "team-a" {
		t.Errorf("%s: %+v %v", out, list, err)
	}
	for line, c := range domainRefusals {
		code, _, errs := command(t, append(strings.Fields(line), "--data-dir", dir)...)
		if code != c.code || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q", line, code, errs)
		}
		for _, text := range c.texts {
			if !strings.Contains(errs, text) {
				t.Errorf("%s: %q lacks %q", line, errs, text)
			}
		}
	}
	if out, _ := ok(t, "domain", "revoke", "default", "*.EXAMPLE.com", "--data-dir", dir); out !=
		"*.example.com revoked from account default: in effect on the server\n" {
		t.Errorf("a revocation printed %q", out)
	}
	if out, _ := ok(t, "domain", "list", "default", "-o", "json", "--data-dir", dir); strings.TrimSpace(out) != "[]" {
		t.Errorf("after the revocation: %s", out)
	}
	stop()
	if out, _ := ok(t, "domain", "revoke", "team-a", "shop.example.net", "--data-dir", dir); out !=
		"shop.example.net revoked from account team-a: no server is running\n" {
		t.Errorf("a revocation without a server printed %q", out)
	}
}

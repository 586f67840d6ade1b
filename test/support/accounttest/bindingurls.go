// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttest

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// BindingURL is a URL that a binding accepts, and its normal form.
type BindingURL struct{ Binding, URL, Normal string }

// BindingURLs are URLs that the bindings internal, public and clusterset accept.
func BindingURLs() []BindingURL {
	long := strings.Repeat("a", 63)
	widest := strings.Repeat(long+".", 3) + strings.Repeat("a", 253-3*64)
	var rows []BindingURL
	for raw, normal := range map[string]string{
		"http://api.internal": "http://api.internal", "HTTP://Api.Internal:80/": "http://api.internal",
		"http://a.b.c.internal:8080": "http://a.b.c.internal:8080",
		"tcp://db.internal:5432":     "tcp://db.internal:5432", "tcp://1.internal:80": "tcp://1.internal:80",
		"http://xn--bcher-kva.internal": "http://xn--bcher-kva.internal",
	} {
		rows = append(rows, BindingURL{account.BindingInternal, raw, normal})
	}
	for raw, normal := range map[string]string{
		"https://app.example.com": "https://app.example.com", "https://APP.Example.COM:443/": "https://app.example.com",
		"https://app.example.com:":     "https://app.example.com",
		"https://app.example.com:8443": "https://app.example.com:8443",
		"http://app.example.com:80":    "http://app.example.com",
		"http://app.example.com:443":   "http://app.example.com:443",
		"https://example.com:80":       "https://example.com:80", "https://1.example": "https://1.example",
		"https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
		"https://app.localhost":         "https://app.localhost", "https://" + widest: "https://" + widest,
		"https://a.0xg": "https://a.0xg",
	} {
		rows = append(rows, BindingURL{account.BindingPublic, raw, normal})
	}
	for raw, normal := range map[string]string{
		"tcp://hello.demo.a:42": "tcp://hello.demo.a:42", "TCP://Hello.Demo.A:65535/": "tcp://hello.demo.a:65535",
		"service://hello.demo.a": "service://hello.demo.a", "Service://Hello.1.2/": "service://hello.1.2",
		"service://hello.demo.a:": "service://hello.demo.a",
		"service://" + strings.Join([]string{long, long, long}, "."): "service://" +
			strings.Join([]string{long, long, long}, "."),
	} {
		rows = append(rows, BindingURL{account.BindingClusterset, raw, normal})
	}
	return rows
}

// RefusedBindingURL is a URL that a binding must refuse, and what the error must name.
type RefusedBindingURL struct{ Binding, URL, Names string }

// RefusedBindingURLs are URLs that no endpoint with the binding internal, public or clusterset may
// have.
func RefusedBindingURLs() []RefusedBindingURL {
	var rows []RefusedBindingURL
	for binding, c := range map[string]struct{ good, host, scheme string }{
		account.BindingInternal: {"a.internal", "end in .internal", "http or tcp"},
		account.BindingPublic:   {"app.example.com", "full domain name", "http or https"},
	} {
		add := func(names string, urls ...string) {
			for _, u := range urls {
				rows = append(rows, RefusedBindingURL{binding, u, names})
			}
		}
		add("the scheme is missing; did you mean", c.good, c.good+":8080", "//"+c.good)
		add("the scheme is missing; give", "", "a")
		add("path", "http://"+c.good+"/path", "http://"+c.good+"//")
		add("query", "http://"+c.good+"?q", "http://"+c.good+"/?q=1")
		add("fragment", "http://"+c.good+"#f")
		add("user name and password", "http://user:hunter2@"+c.good, "http://@"+c.good, "http://hunter2@"+c.good+":80")
		add("300 characters", "http://"+strings.Repeat("a", 300)+"."+c.good)
		for _, s := range []string{"tls", "ftp", "", "wss", "udp"} {
			add(c.scheme, s+"://"+c.good)
		}
		for _, p := range []string{"0", "70000", "99999999999", "-1", "080", "8x", "+80", "0x50", "65536", "80:80"} {
			add("from 1 to 65535", "http://"+c.good+":"+p)
		}
		for _, h := range []string{"*." + c.good, "*", c.good + ".", "." + c.good, "a.." + c.good, "-a." + c.good,
			"a-." + c.good, "a_b." + c.good, "a%2e." + c.good, "a,b." + c.good,
			"[::1]", "[::1]:80", "[" + c.good + "]", "10.0.0.1", "10.1", "1.0x7f", "", ".",
			strings.Repeat("a", 64) + "." + c.good, strings.Repeat("a.", 125) + c.good, "internal", "localhost"} {
			add(c.host, "http://"+h)
		}
		for _, h := range []string{"ä." + c.good, "a\x00." + c.good, c.good + "\n", " " + c.good, "a\t." + c.good,
			"a\x7f." + c.good, "\xff." + c.good, "ａ." + c.good} {
			add("printable ASCII", "http://"+h)
		}
	}
	for raw, names := range map[string]string{
		"http://hello.demo.a": "tcp or service", "https://hello.demo.a:42": "tcp or service",
		"tcp://hello.demo.a": "needs a port", "tcp://hello.demo.a:": "needs a port",
		"tcp://hello.demo.a:0": "from 1 to 65535", "service://hello.demo.a:42": "has no port",
		"service://hello.demo.a:0": "has no port", "service://hello.demo.a/b": "path",
		"service://user:hunter2@hello.demo.a": "user name and password",
		"hello.demo.a":                        "the scheme is missing; give",
		"hello.demo.a:42":                     `the scheme is missing; did you mean "tcp://hello.demo.a:42"`,
	} {
		rows = append(rows, RefusedBindingURL{account.BindingClusterset, raw, names})
	}
	for _, host := range []string{"", ".", "hello", "hello.demo", "hello.demo.a.b", "1hello.demo.a", "hello..a",
		"hello.demo.", "hello.demo.a.", ".demo.a", "hello.-demo.a", "hello.demo.a-", "hello.demo.a_b", "*.demo.a",
		"hello.demo.*", "10.0.0.1", "[::1]", "hello.demo." + strings.Repeat("a", 64)} {
		rows = append(rows, RefusedBindingURL{account.BindingClusterset, "service://" + host, "three DNS labels"})
	}
	return append(rows,
		RefusedBindingURL{account.BindingInternal, "tcp://a.internal", "needs a port"},
		RefusedBindingURL{account.BindingInternal, "tcp://a.internal:", "needs a port"},
		RefusedBindingURL{account.BindingInternal, "https://a.internal", "http or tcp"},
		RefusedBindingURL{account.BindingInternal, "http://a.example.com", "end in .internal"},
		RefusedBindingURL{account.BindingPublic, "tcp://app.example.com:5432", "http or https"},
		RefusedBindingURL{account.BindingPublic, "https://a.internal", "not below .internal"})
}

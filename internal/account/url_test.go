// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

func TestParseEndpointURL_NormalisesSpellings(t *testing.T) {
	t.Parallel()
	want := account.EndpointURL{Scheme: "http", Host: "a.b", Port: 80}
	for _, raw := range accounttest.SameURLs() {
		if got, err := account.ParseEndpointURL(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

func TestParseEndpointURL_SplitsHostAndPort(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://api.demo":        "http://api.demo|api.demo:80|api|demo",
		"http://api.demo:8080":   "http://api.demo:8080|api.demo:8080|api|demo",
		"tcp://db-1.prod-2:5432": "tcp://db-1.prod-2:5432|db-1.prod-2:5432|db-1|prod-2",
		"tcp://a.b:80":           "tcp://a.b:80|a.b:80|a|b",
		"tcp://a.0:65535":        "tcp://a.0:65535|a.0:65535|a|0",
		"http://" + strings.Repeat("a", 63) + "." + strings.Repeat("9", 63): "http://" + strings.Repeat("a", 63) + "." +
			strings.Repeat("9", 63) + "|" +
			strings.Repeat("a", 63) + "." + strings.Repeat("9", 63) + ":80|" + strings.Repeat("a", 63) + "|" +
			strings.Repeat("9", 63),
	} {
		u, err := account.ParseEndpointURL(raw)
		if got := strings.Join([]string{u.String(), u.HostPort(), u.Service(), u.Namespace()}, "|"); err != nil ||
			got != want {
			t.Errorf("%q: %s, %v", raw, got, err)
		}
	}
}

func TestParseEndpointURL_NamesBrokenRule(t *testing.T) {
	t.Parallel()
	for _, row := range accounttest.RefusedURLs() {
		got, err := account.ParseEndpointURL(row.URL)
		fields := account.FieldsOf(err)
		if account.CodeOf(err) != account.CodeInvalid || len(fields) != 1 || fields[0].Field != "url" ||
			!strings.Contains(fields[0].Rule, row.Names) {
			t.Errorf("%q: %+v, error %v does not name %q", row.URL, got, err, row.Names)
		}
	}
}

func TestParseEndpointURL_HidesPassword(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"http://user:hunter2@a.b", "user:hunter2@a.b", "http://hunter2@", "hunter2@a.b://c.d",
		"ftp://x:hunter2@a.b/p@q"} {
		if _, err := account.ParseEndpointURL(raw); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v", raw, err)
		}
	}
}

// FuzzParseEndpointURL: parse(format(x)) = x, what we accept Kubernetes and net/url accept, what we
// refuse has a rule.
func FuzzParseEndpointURL(f *testing.F) {
	for _, raw := range accounttest.SameURLs() {
		f.Add(raw)
	}
	for _, row := range accounttest.RefusedURLs() {
		f.Add(row.URL)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := account.ParseEndpointURL(raw)
		if err != nil {
			if fields := account.FieldsOf(err); len(fields) != 1 || fields[0].Rule == "" || len(fields[0].Value) > 70 {
				t.Fatalf("error %v of %q has no rule, or a long value", err, raw)
			}
			return
		}
		again, err := account.ParseEndpointURL(u.String())
		if err != nil || again != u {
			t.Fatalf("%q is %+v, its normal form %q is %+v, %v", raw, u, u, again, err)
		}
		if account.ValidKubernetesHostname(strings.ToUpper(u.Host)) {
			t.Fatalf("%q is valid in upper case", u.Host)
		}
		for _, problems := range [][]string{validation.IsDNS1035Label(u.Service()),
			validation.IsDNS1123Label(u.Namespace()),
			validation.IsValidPortNum(u.Port), validation.IsDNS1123Subdomain(u.Host)} {
			if len(problems) > 0 {
				t.Fatalf("Kubernetes refuses %q: %v", u, problems)
			}
		}
		if std, err := url.Parse(u.String()); err != nil || std.Hostname() != u.Host || std.Scheme != u.Scheme {
			t.Fatalf("net/url reads %q as %v, %v", u, std, err)
		}
	})
}

func TestParseServerURL_NormalisesAndRefuses(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{"https://Host:8443": "https://host:8443", "host": "https://host",
		"host:1": "https://host:1", "https://h/": "https://h",
		"[::1]:8443": "https://[::1]:8443", "https://[2001:DB8::1]": "https://[2001:db8::1]",
		"https://10.0.0.1": "https://10.0.0.1"} {
		if got, err := account.ParseServerURL("server", raw); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"", "http://h", "https://", "https://h/path", "https://h?q", "https://h#f",
		"https://u@h",
		"h:0", "h:65536", "h:x", "ht tp://h", "https://h\n", ":8443", "::1", "https://::1", "https://::1:8443",
		"fe80::1:8443", "https://[::1"} {
		if got, err := account.ParseServerURL("server", raw); account.CodeOf(err) != account.CodeInvalid ||
			account.FieldsOf(err)[0].Field != "server" {
			t.Errorf("%q: %v, %v", raw, got, err)
		}
	}
}

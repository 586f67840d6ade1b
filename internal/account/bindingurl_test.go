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

func TestParseBindingURL_AcceptsRulesOfBinding(t *testing.T) {
	t.Parallel()
	for _, row := range accounttest.BindingURLs() {
		u, err := account.ParseBindingURL(row.Binding, row.URL)
		if err != nil || u.String() != row.Normal {
			t.Errorf("%s %q: %s, %v", row.Binding, row.URL, u, err)
		}
		if any, err := account.ParseAnyURL(row.URL); err != nil || any != u {
			t.Errorf("%q under any binding: %+v, %v", row.URL, any, err)
		}
	}
	for _, binding := range account.Bindings() {
		if _, err := account.ParseBindingURL(binding, "http://a.b/path"); account.FieldsOf(err)[0].Field != "url" {
			t.Errorf("%s: %v", binding, err)
		}
	}
	for _, binding := range []string{"", "Public", "kubernetes ", "tcp"} {
		if _, err := account.ParseBindingURL(binding, "http://a.b"); account.FieldsOf(err)[0].Field != "binding" {
			t.Errorf("binding %q: %v", binding, err)
		}
	}
}

func TestParseBindingURL_NamesBrokenRule(t *testing.T) {
	t.Parallel()
	for _, row := range accounttest.RefusedBindingURLs() {
		got, err := account.ParseBindingURL(row.Binding, row.URL)
		fields := account.FieldsOf(err)
		if account.CodeOf(err) != account.CodeInvalid || len(fields) != 1 || fields[0].Field != "url" ||
			!strings.Contains(fields[0].Rule, row.Names) {
			t.Errorf("%s %q: %+v, error %v does not name %q", row.Binding, row.URL, got, err, row.Names)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a password: %v", row.Binding, err)
		}
	}
}

// TestParseAnyURL_ExplainsByLikelyBinding: where no binding accepts a URL, the rule is that of the
// binding that was probably meant.
func TestParseAnyURL_ExplainsByLikelyBinding(t *testing.T) {
	t.Parallel()
	for raw, names := range map[string]string{"https://app": "full domain name", "tcp://db.internal": "needs a port",
		"http://a_b.internal": ".internal", "tcp://a.b": "needs a port",
		"ftp://a.b": "http or tcp", "http://a": "exactly two DNS labels", "service://a.b": "three DNS labels"} {
		_, err := account.ParseAnyURL(raw)
		if !strings.Contains(account.FirstRule(err), names) {
			t.Errorf("%q: %v does not name %q", raw, err, names)
		}
	}
}

// FuzzParseBindingURL: parse(format(x)) = x for every binding, and what is accepted net/url and DNS
// accept.
func FuzzParseBindingURL(f *testing.F) {
	for _, row := range accounttest.BindingURLs() {
		f.Add(row.Binding, row.URL)
	}
	for _, row := range accounttest.RefusedBindingURLs() {
		f.Add(row.Binding, row.URL)
	}
	f.Fuzz(func(t *testing.T, binding, raw string) {
		u, err := account.ParseBindingURL(binding, raw)
		if err != nil {
			if fields := account.FieldsOf(err); len(fields) != 1 || fields[0].Rule == "" || len(fields[0].Value) > 70 {
				t.Fatalf("error %v of %q has no rule, or a long value", err, raw)
			}
			return
		}
		if again, err := account.ParseBindingURL(binding, u.String()); err != nil || again != u {
			t.Fatalf("%q is %+v, its normal form %q is %+v, %v", raw, u, u, again, err)
		}
		if other, err := account.ParseAnyURL(raw); err != nil || other != u {
			t.Fatalf("%q is %+v, and under any binding %+v, %v", raw, u, other, err)
		}
		if problems := validation.IsDNS1123Subdomain(u.Host); len(problems) > 0 || u.Port < 0 || u.Port > 65535 ||
			(u.Port == 0) != (u.Scheme == account.SchemeService) {
			t.Fatalf("%q: %v", u, problems)
		}
		if std, err := url.Parse(u.String()); err != nil || std.Hostname() != u.Host || std.Scheme != u.Scheme {
			t.Fatalf("net/url reads %q as %v, %v", u, std, err)
		}
		if binding == account.BindingClusterset {
			labels := strings.Split(u.Host, ".")
			if len(labels) != 3 || labels[2] != u.ClusterID() || !account.ValidClusterID(u.ClusterID()) ||
				len(validation.IsDNS1035Label(labels[0])) > 0 || len(validation.IsDNS1123Label(labels[1])) > 0 {
				t.Fatalf("%q has no Service, namespace and cluster id", u)
			}
		} else if below := strings.HasSuffix(u.Host, ".internal"); below != (binding == account.BindingInternal) &&
			binding != account.BindingKubernetes {
			t.Fatalf("%s accepts %q", binding, u)
		}
	})
}

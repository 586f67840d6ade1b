// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestPublicOptions_RefusesContradictions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servicetest.IssueCertificate(t, dir, "a.test")
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, c := range map[string]struct {
		o    service.PublicOptions
		want string // "" = nothing is wrong
	}{
		"none":  {service.PublicOptions{}, ""},
		"http":  {service.PublicOptions{HTTPAddr: ":80"}, ""},
		"https": {service.PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{cert}, TLSKeys: []string{key}}, ""},
		"a directory": {service.PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{dir, cert}, TLSKeys: []string{key}},
			""},
		"https, no certificate": {service.PublicOptions{HTTPSAddr: ":443"}, "--public-tls-cert"},
		"no key": {service.PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{cert, cert}, TLSKeys: []string{key}},
			"--public-tls-key"},
		"a key for a directory": {service.PublicOptions{HTTPSAddr: ":443", TLSCerts: []string{dir},
			TLSKeys: []string{key}},
			"no --public-tls-cert for it"},
		"certificates, no https": {service.PublicOptions{HTTPAddr: ":80", TLSCerts: []string{cert},
			TLSKeys: []string{key}},
			"--public-https-addr"},
		"bad address": {service.PublicOptions{HTTPAddr: "80"}, "--public-http-addr"},
		"bad proxies": {service.PublicOptions{HTTPAddr: ":80", TrustedProxies: []string{"10.0.0.0/33"}},
			"--trusted-proxies"},
		"no trusted proxy":         {service.PublicOptions{HTTPAddr: ":80", ProxyProtocol: true}, "--trusted-proxies"},
		"proxies of the dashboard": {service.PublicOptions{TrustedProxies: []string{"10.0.0.1", "fd00::/8"}}, ""},
		"their header, no edge": {service.PublicOptions{TrustedProxies: []string{"10.0.0.1"}, ProxyProtocol: true},
			"--public-http-addr"},
		"ACME":               {service.PublicOptions{HTTPSAddr: ":443", ACME: acme(dir)}, ""},
		"ACME, no https":     {service.PublicOptions{HTTPAddr: ":80", ACME: acme(dir)}, "--public-https-addr"},
		"ACME, no directory": {service.PublicOptions{ACME: service.ACMEOptions{AgreeTOS: true}}, "--acme-directory"},
		"ACME, terms": {service.PublicOptions{HTTPSAddr: ":443",
			ACME: service.ACMEOptions{Directory: "https://acme.test/dir"}}, "--acme-agree-tos"},
		"ACME, plain": {service.PublicOptions{HTTPSAddr: ":443",
			ACME: service.ACMEOptions{Directory: "http://acme.test/dir", AgreeTOS: true}}, "https URL"},
		"less than no connection": {service.PublicOptions{HTTPAddr: ":80", MaxConns: -1}, "--public-max-connections"},
	} {
		var broken []account.FieldError
		c.o.Validate(func(err error) { broken = append(broken, account.FieldsOf(err)...) })
		if c.want == "" && len(broken) > 0 || c.want != "" &&
			(len(broken) != 1 || !strings.Contains(broken[0].String(), c.want)) {
			t.Errorf("%s: %v, want %q", name, broken, c.want)
		}
	}
}

func acme(dir string) service.ACMEOptions {
	return service.ACMEOptions{Directory: "https://acme.test/dir", AgreeTOS: true, Email: "ops@example.com",
		CAFile: filepath.Join(dir, "tls.crt")}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestParseAuthorities_CertificatesOnly(t *testing.T) {
	t.Parallel()
	owner, files := makeRoot(t)
	root, leaf := string(files[1].Data), string(sign(t, owner, endpoints(t, "http://api.demo"), time.Now()).crt)
	for name, tt := range map[string]struct{ text, refused string }{
		"one":            {root, ""},
		"two, commented": {"Subject: root\n" + root + "\n" + root, ""},
		"none":           {"", "not the PEM text"},
		"no authority":   {leaf, "CN=Sealed endpoints,O=Fairlead, is not one of an authority"},
		"a broken one":   {strings.Replace(root, "-----END CERTIFICATE-----", "", 1) + root, "not the PEM text"},
		"no certificate": {"-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n", "cannot be read"},
		"a key": {root + "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
			`PEM block "PRIVATE KEY"`},
	} {
		_, err := authority.ParseAuthorities(tt.text)
		if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallers_FollowsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "authorities.pem")
	synctest.Test(t, func(t *testing.T) {
		a, aFiles := makeRoot(t)
		b, bFiles := makeRoot(t)
		callers := &authority.Callers{File: file}
		for _, step := range []struct {
			name    string
			content []byte
			a, b    bool // a and b report whether certificates of theirs are good.
			problem string
		}{
			{"none yet", nil, false, false, "no such file"},
			{"one", aFiles[1].Data, true, false, ""},
			{"with its successor", append(aFiles[1].Data, bFiles[1].Data...), true, true, ""},
			{"damaged", []byte("x"), true, true, "authorities.pem: it is not the PEM text"},
			{"the successor", bFiles[1].Data, false, true, ""},
		} {
			if step.content != nil {
				must.Succeed(t, os.WriteFile(file, step.content, 0o600))
			}
			time.Sleep(10 * time.Second)
			for root, want := range map[*authority.Root]bool{a: step.a, b: step.b} {
				_, err := root.Certificate.Verify(x509.VerifyOptions{Roots: callers.Pool()})
				if (err == nil) != want {
					t.Errorf("%s: %v", step.name, err)
				}
			}
			err := callers.Problem()
			if (err == nil) != (step.problem == "") || err != nil && !strings.Contains(err.Error(), step.problem) {
				t.Errorf("%s: %v, want %q", step.name, err, step.problem)
			}
		}
	})
}

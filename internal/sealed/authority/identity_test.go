// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestOpenIdentity_NamesTheField(t *testing.T) {
	t.Parallel()
	root, files := makeRoot(t)
	good, noPEM := t.TempDir(), filepath.Join(t.TempDir(), "x.pem")
	sign(t, root, endpoints(t, "tcp://*.demo:5432"), time.Now()).write(t, good)
	ended := t.TempDir()
	sign(t, root, endpoints(t, "tcp://*.demo:5432"), time.Now().AddDate(0, 0, -9)).write(t, ended)
	must.Succeed(t, os.WriteFile(noPEM, []byte("none"), 0o600))
	roots := filepath.Join(t.TempDir(), "root.crt")
	must.Succeed(t, os.WriteFile(roots, files[1].Data, 0o600))
	for _, c := range []struct{ dir, callers, url, field, want string }{
		{good, "", "tcp://db.demo:5432", "", ""},
		{good, roots, "tcp://db.demo:5432", "", ""},
		{good, "", "tcp://db.demo:5433", "sealed", "does not name tcp://db.demo:5433: have one signed that does"},
		{ended, "", "tcp://db.demo:5432", "sealed", "replace it, or set the clock"},
		{t.TempDir(), "", "tcp://db.demo:5432", "sealed", "tls.crt"},
		{good, noPEM, "tcp://db.demo:5432", "seal_callers", "not the PEM text"},
		{good, noPEM + "x", "tcp://db.demo:5432", "seal_callers", "no such file"},
	} {
		u, err := account.ParseEndpointURL(c.url)
		must.Succeed(t, err)
		i, err := authority.OpenIdentity(c.dir, c.callers, "")
		if err == nil {
			err = authority.CheckURL(c.dir, i, u)
		}
		broken := append(account.FieldsOf(err), account.FieldError{})[0]
		if (err == nil) != (c.want == "") || broken.Field != c.field || !strings.Contains(broken.Rule, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestLoadLeaf_RefusesWhatCannotServe(t *testing.T) {
	t.Parallel()
	root, rootFiles := makeRoot(t)
	now := time.Now()
	good := sign(t, root, endpoints(t, "http://api.demo"), now)
	other := sign(t, root, endpoints(t, "http://b.demo"), now)
	caller := sign(t, root, authority.Names{Account: accountID, Caller: "c-1"}, now)
	old := sign(t, root, endpoints(t, "http://api.demo"), now.Add(-25*time.Hour))
	early := sign(t, root, endpoints(t, "http://api.demo"), now.Add(time.Hour))
	soon := sign(t, root, endpoints(t, "http://api.demo"), now.Add(9*time.Minute))
	block, _ := pem.Decode(good.key)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must.Succeed(t, err)
	sec1, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		crt, key []byte
		want     string
	}{
		"good":            {good.crt, good.key, ""},
		"with its root":   {append(good.crt, rootFiles[1].Data...), good.key, ""},
		"of cert-manager": {good.crt, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}), ""},
		"a caller":        {caller.crt, caller.key, ""},
		"another key":     {good.crt, other.key, "are not a certificate and its private key"},
		"no key":          {good.crt, good.crt, "are not a certificate and its private key"},
		"no certificate":  {good.key, good.key, "are not a certificate and its private key"},
		"a root":          {rootFiles[1].Data, rootFiles[0].Data, "the certificate has no name of a sealed endpoint"},
		"ended":           {old.crt, old.key, "the certificate is in force from "},
		"another clock":   {soon.crt, soon.key, ""},
		"not begun":       {early.crt, early.key, ": replace it, or set the clock"},
		"large":           {make([]byte, 1<<20), good.key, "are not a certificate and its private key"},
	} {
		dir := t.TempDir()
		pair{crt: c.crt, key: c.key}.write(t, dir)
		loaded, err := authority.LoadLeaf(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		switch {
		case c.want == "" && (err != nil || loaded.Leaf == nil):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// mount writes a pair as the kubelet does: into a new folder, to which the link ..data is moved.
func mount(t *testing.T, dir, version string, p pair) {
	t.Helper()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	p.write(t, filepath.Join(dir, version))
	must.Succeed(t, os.Symlink(version, filepath.Join(dir, "..tmp")))
	must.Succeed(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
}

func TestSource_FollowsMountedSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"tls.crt", "tls.key"} {
		must.Succeed(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	synctest.Test(t, func(t *testing.T) {
		root := newRoot(t)
		s := &authority.Source{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
		check := func(step string, want *x509.Certificate, problem string) {
			t.Helper()
			got, err := s.Certificate()
			if (got == nil) != (err != nil) || (got == nil) != (want == nil) || want != nil && !got.Leaf.Equal(want) {
				t.Errorf("%s: another certificate, or none (%v)", step, err)
			}
			err = s.Problem()
			if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %v, want %q", step, err, problem)
			}
		}
		check("nothing is mounted", nil, "no such file")
		first := sign(t, root, endpoints(t, "http://api.demo"), time.Now())
		mount(t, dir, "1", first)
		check("before the next check", nil, "no such file")
		time.Sleep(10 * time.Second)
		check("mounted", first.cert, "")

		second := sign(t, root, endpoints(t, "http://api.demo"), time.Now())
		mount(t, dir, "2", second)
		check("before the next check", first.cert, "")
		time.Sleep(10 * time.Second)
		check("replaced", second.cert, "")

		third := sign(t, root, endpoints(t, "http://api.demo"), time.Now())
		mount(t, dir, "3", pair{crt: third.crt, key: first.key})
		time.Sleep(10 * time.Second)
		check("a broken pair", second.cert, "are not a certificate and its private key")
		must.Succeed(t, os.WriteFile(s.KeyFile, third.key, 0o600))
		time.Sleep(10 * time.Second)
		check("mended", third.cert, "")

		must.Succeed(t, os.Remove(filepath.Join(dir, "..data")))
		time.Sleep(10 * time.Second)
		check("unmounted", third.cert, "no such file")
		mount(t, dir, "4", third)
		time.Sleep(15*time.Hour + 50*time.Minute)
		check("to be renewed", third.cert, "")
		time.Sleep(20 * time.Minute)
		check("in its last third", third.cert, "tls.crt: less than a third of the certificate's life is left, until ")
		time.Sleep(8 * time.Hour)
		check("ended", third.cert, "tls.crt: the certificate is in force from ")
	})
}

func TestFile_WritesWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "root.key")
	contents := []string{strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<16)}
	file := func(i int) authority.File {
		return authority.File{Name: name, Data: []byte(contents[i]), Mode: authority.Secret}
	}
	must.Succeed(t, file(0).Write())
	var written sync.WaitGroup
	for i := range contents {
		written.Go(func() {
			for range 50 {
				if err := file(i).Write(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 100 {
		text, err := os.ReadFile(name)
		must.Succeed(t, err)
		if string(text) != contents[0] && string(text) != contents[1] {
			t.Fatalf("a reader found %d bytes of two contents", len(text))
		}
	}
	written.Wait()
	if err := (authority.File{Name: dir}).Write(); err == nil {
		t.Error("a folder was replaced by a file")
	}
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if left, _ := os.ReadDir(folder); len(left) != 1 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestWriteFiles_AllOrNone checks that no file is written when one of them exists.
func TestWriteFiles_AllOrNone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "seal")
	first := authority.File{Name: "a", Mode: authority.Secret}
	second := authority.File{Name: "b", Mode: authority.Public}
	must.Succeed(t, authority.WriteFiles(dir, false, second))
	if err := authority.WriteFiles(dir, false, first, second); err == nil {
		t.Error("an existing file was replaced")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("written: %v", left)
	}
}

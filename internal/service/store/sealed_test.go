// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// What lies on the disk shows nothing of a policy, not even a digest that a guess could be compared
// with.
func TestPolicies_SealedOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(t.Context(), opt)
	})
	e := f.Cloud("http://shop.demo")
	e.TrafficPolicy, e.Metadata = "hush-hush", "not-hidden"
	_, err := f.Store.CreateEndpoint(t.Context(), e, account.PolicyFacts{Digest: "guessable-digest"})
	storetest.Must(t, err)
	notOnDisk(t, dir, "not-hidden", "hush-hush", "guessable-digest")
}

// What lies on the disk of a login is what lists show: not by what the person is known, not their
// groups, not the browser's secret.
func TestIdentities_SealedOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(t.Context(), opt)
	})
	f.Login("alice", "browser-secret", func(l *account.NewLogin) {
		l.Key, l.Identity.Name, l.SessionID = "identity-key", "not-hidden", "sid"
		l.Identity.Groups, l.Identity.Attributes = []string{"secret-group"},
			map[string][]string{"secret-attribute": {"x"}}
	})
	f.Clock.Step(time.Second)
	storetest.Must(t, f.Store.SaveTicket(t.Context(), f.AccountID, storetest.TokenHash("ticket"),
		[]byte("secret-ticket"),
		f.Clock.Now().Add(time.Hour)))
	_, err := f.Store.UseOnce(t.Context(), f.AccountID, "secret-assertion", f.Clock.Now().Add(time.Hour))
	storetest.Must(t, err)
	_, err = f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
		account.RevokeSelector{Issuer: "https://id.example", Subject: "gone", ProviderSession: "secret-sid"},
		account.RevokedByBackChannel)
	storetest.Must(t, err)
	notOnDisk(t, dir, "not-hidden", "browser-secret", "identity-key", "secret-group", "secret-attribute",
		"secret-ticket",
		"secret-assertion", "secret-sid")
}

// Keys and answers to challenges of the ACME directory are never plain.
func TestACME_SealedOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(t.Context(), opt)
	})
	for _, kind := range []store.ACMEKind{store.ACMEAccount, store.ACMECertificate, store.ACMEHTTP01} {
		storetest.Must(t, f.Store.PutACME(t.Context(), kind, "not-hidden", "secret-of-"+string(kind)))
		if v, err := f.Store.ACMEValue(t.Context(), kind, "not-hidden"); err != nil || v != "secret-of-"+string(kind) {
			t.Errorf("%s: %q, %v", kind, v, err)
		}
	}
	notOnDisk(t, dir, "not-hidden", "secret-of")
}

func TestCheckKey_RefusesOtherKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(t.Context(), opt)
	})
	f.Login("alice", "s1")
	storetest.Must(t, f.Store.CheckKey(t.Context()))
	other, err := seal.New(bytes.Repeat([]byte{8}, seal.KeySize))
	storetest.Must(t, err)
	s, err := store.Open(t.Context(), store.Options{DataDir: dir, Key: other, Clock: f.Clock.Now})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	if err := s.CheckKey(t.Context()); err == nil || !strings.Contains(err.Error(), "--secret-key-file") {
		t.Errorf("checking another key: %v", err)
	}
	_, err = s.LiveSession(t.Context(), f.AccountID, storetest.TokenHash("s1")) // never through
	storetest.MustCode(t, err, account.CodeInternal)
}

// notOnDisk fails when a file of the directory holds one of the secrets; one of them holds what is
// shown.
func notOnDisk(t *testing.T, dir, shown string, secrets ...string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	storetest.Must(t, err)
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		storetest.Must(t, err)
		all = append(all, content...)
	}
	if !bytes.Contains(all, []byte(shown)) {
		t.Fatal("this test looks in the wrong place")
	}
	for _, secret := range secrets {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("the files hold %q", secret)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func key(t *testing.T, fill byte) *seal.Key {
	t.Helper()
	k, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	must.Succeed(t, err)
	return k
}

func TestKey_UnsealsOnlyForOwner(t *testing.T) {
	t.Parallel()
	k := key(t, 1)
	sealed := k.Seal("hush", "ep-1")
	if again := k.Seal("hush", "ep-1"); bytes.Equal(sealed, again) || bytes.Contains(sealed, []byte("hush")) {
		t.Errorf("sealed %q and %q", sealed, again)
	}
	if got, err := k.Unseal(sealed, "ep-1"); got != "hush" || err != nil {
		t.Errorf("unsealed %q, %v", got, err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1] ^= 1
	for name, open := range map[string]func() (string, error){
		"another key":    func() (string, error) { return key(t, 2).Unseal(sealed, "ep-1") },
		"another owner":  func() (string, error) { return k.Unseal(sealed, "ep-2") },
		"damage":         func() (string, error) { return k.Unseal(damaged, "ep-1") },
		"nothing":        func() (string, error) { return k.Unseal(nil, "ep-1") },
		"another format": func() (string, error) { return k.Unseal(append([]byte{9}, sealed[1:]...), "ep-1") },
	} {
		if got, err := open(); !errors.Is(err, seal.ErrSealed) || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestKey_MarksAndDigestsAreKeyed(t *testing.T) {
	t.Parallel()
	one, two := key(t, 1), key(t, 2)
	if m := one.RedactionMark("ac", "hush"); !regexp.MustCompile(`^redacted:[0-9a-f]{8}$`).MatchString(m) ||
		m != one.RedactionMark("ac", "hush") ||
		m == one.RedactionMark("ac", "hush!") || m == one.RedactionMark("ab", "hush") ||
		m == two.RedactionMark("ac", "hush") {
		t.Errorf("mark %q", m)
	}
	if d := one.Digest("x"); len(d) != 64 || d != one.Digest("x") || d == two.Digest("x") ||
		strings.HasPrefix(d, strings.TrimPrefix(one.RedactionMark("", "x"), seal.RedactionPrefix)) {
		t.Errorf("digest %q", d)
	}
	if d := one.Digest(""); d != "" {
		t.Errorf("digest of nothing %q", d)
	}
}

func TestKey_DerivesKeysByPurpose(t *testing.T) {
	t.Parallel()
	one, two := key(t, 1), key(t, 2)
	if one.Derive("x") != key(t, 1).Derive("x") || one.Derive("x") == one.Derive("y") ||
		one.Derive("x") == two.Derive("x") {
		t.Error("derived keys are not those of a purpose and a secret key")
	}
	if derived := one.Derive("x"); hex.EncodeToString(derived[:]) == one.Digest("x") {
		t.Error("a derived key is a digest, which is stored")
	}
}

func TestReadOrCreate_CreatesFileOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "secret.key")
	marks := make([]string, 8)
	var all sync.WaitGroup
	for i := range marks {
		all.Go(func() {
			k, err := seal.ReadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			marks[i] = k.RedactionMark("", "x")
		})
	}
	all.Wait()
	for _, m := range marks {
		if m != marks[0] {
			t.Fatalf("different keys: %q", marks)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file %v, %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRead_RefusesBadFilesWithoutShowingThem(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"short": "c0ffee", "no hex": strings.Repeat("zz", 32), "empty": "",
		"long": strings.Repeat("ab", 33)} {
		path := filepath.Join(t.TempDir(), "key")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := seal.ReadOrCreate(path)
		if err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") || text != "" &&
			strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := seal.ReadOrCreate(filepath.Join(t.TempDir(), "missing", "key")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing directory: %v", err)
	}
}

// Values sealed by versions that made their own nonces are still read.
func TestKey_UnsealsEarlierVersions(t *testing.T) {
	t.Parallel()
	sealed, err := hex.DecodeString(
		"014841287f523bf703e4bef5a98771133d33728e289dbbcc53b90e69988f61793e27ab7a39414c0c073b")
	must.Succeed(t, err)
	if got, err := key(t, 7).Unseal(sealed, "bk-1"); got != "client secret" || err != nil {
		t.Errorf("unsealed %q, %v", got, err)
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

func newRelease(t *testing.T, files map[string]string) *release.Release {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "release.key")
	if err := CreateKey(key); err != nil {
		t.Fatal(err)
	}
	r := &release.Release{
		Version: "0.2.0", Commit: strings.Repeat("c", 40), Source: ".", Dist: filepath.Join(dir, "dist"), Key: key,
		Platforms: []release.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}},
	}
	if err := os.Mkdir(r.Dist, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(r.Path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestWrite_SignsEveryNameAndDigestWithProvenance(t *testing.T) {
	t.Parallel()
	r := newRelease(t, map[string]string{"b.txt": "b", "a.txt": ""})
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	statement, err := Open(r.Path(r.Signature()), r.Key+".pub")
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, s := range statement.GetSubject() {
		subjects = append(subjects, s.GetName()+" "+s.GetDigest()["sha256"])
	}
	const want = "a.txt e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n" +
		"b.txt 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
	if got := strings.Join(subjects, "\n"); got != want {
		t.Errorf("subjects:\n%s\nwant:\n%s", got, want)
	}
	if statement.GetPredicateType() != PredicateType {
		t.Errorf("predicate type %q", statement.GetPredicateType())
	}
	source, err := ReadSource(statement)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Source{
		Version: "v0.2.0", Commit: r.Commit, Platforms: "linux/amd64,darwin/arm64", GoVersion: source.GoVersion,
	}); source != want || !strings.HasPrefix(source.GoVersion, "go1.") {
		t.Errorf("source %+v, want %+v", source, want)
	}
}

func TestWrite_RefusesFolders(t *testing.T) {
	t.Parallel()
	r := newRelease(t, nil)
	if err := os.Mkdir(r.Path("extra"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), r); err == nil || !strings.Contains(err.Error(), "extra is not a file of a release") {
		t.Errorf("got %v", err)
	}
}

func TestOpen_RefusesOtherKeysAndChangedBundles(t *testing.T) {
	t.Parallel()
	r := newRelease(t, map[string]string{"a.txt": "a"})
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	other := newRelease(t, nil)
	file := r.Path(r.Signature())
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, key, bundle, want string
	}{
		{"other key", other.Key + ".pub", string(text), "is not by the key in " + other.Key + ".pub"},
		{"truncated", r.Key + ".pub", string(text[:len(text)/2]), "is not a Sigstore bundle"},
		{"empty", r.Key + ".pub", "", "is not a Sigstore bundle"},
		{"changed payload", r.Key + ".pub", strings.Replace(string(text), `"payload":"`, `"payload":"AAAA`, 1),
			"is not by the key"},
		{"private key", r.Key, string(text), `holds no PEM block "PUBLIC KEY"`},
		{"no key", "", string(text), "give PUBLIC_KEY="},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changed := filepath.Join(t.TempDir(), "fairlead_0.2.0.sigstore.json")
			if err := os.WriteFile(changed, []byte(c.bundle), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(changed, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

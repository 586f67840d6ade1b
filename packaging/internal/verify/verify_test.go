// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/archive"
	"github.com/fairlead-dev/fairlead/packaging/internal/binaries"
	"github.com/fairlead-dev/fairlead/packaging/internal/checksums"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
	"github.com/fairlead-dev/fairlead/packaging/internal/sbom"
	"github.com/fairlead-dev/fairlead/packaging/internal/signature"
)

// begin returns a release without files, for this platform and for another one.
func begin(t *testing.T, version string) *release.Release {
	t.Helper()
	here, other := runtime.GOOS+"/"+runtime.GOARCH, "linux/arm64"
	if here == other {
		other = "linux/amd64"
	}
	o := releasetest.Options(t, releasetest.Checkout(t), here, other)
	o.Version, o.Key = version, filepath.Join(t.TempDir(), "release.key")
	must(t, signature.CreateKey(o.Key))
	r, err := release.Open(t.Context(), o)
	must(t, err)
	must(t, r.Begin())
	return r
}

// build returns a release with archives, without checksums and signature.
func build(t *testing.T, version string) *release.Release {
	t.Helper()
	r := begin(t, version)
	releasetest.WriteFile(t, r.Path(release.ThirdPartyLicenses), "licences\n")
	for _, write := range []func(context.Context, *release.Release) error{
		binaries.Write, archive.Write, images.Write, sbom.Write,
	} {
		must(t, write(t.Context(), r))
	}
	must(t, r.Finish())
	for _, other := range []string{"_airgap_", "_cluster_"} { // no archive of a program
		must(t, os.WriteFile(r.Path("fairlead_"+r.Version+other+"linux_amd64.tar.gz"), []byte(other), 0o600))
	}
	return r
}

// sign completes a release.
func sign(t *testing.T, r *release.Release) *release.Release {
	t.Helper()
	must(t, checksums.Write(t.Context(), r))
	must(t, r.Finish())
	must(t, signature.Write(t.Context(), r))
	return r
}

// copyOf returns a release with a copy of the files.
func copyOf(t *testing.T, r *release.Release) *release.Release {
	t.Helper()
	copied := *r
	copied.Dist = filepath.Join(t.TempDir(), "dist")
	must(t, os.CopyFS(copied.Dist, os.DirFS(r.Dist)))
	return &copied
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verifyRelease returns what Run printed and its error.
func verifyRelease(ctx context.Context, r *release.Release, key string) (string, error) {
	var out strings.Builder
	err := Run(ctx, Options{Dist: r.Dist, PublicKey: key, Out: &out})
	return out.String(), err
}

func TestRun_PrintsALineForEachCheck(t *testing.T) {
	t.Parallel()
	r := sign(t, build(t, "v0.2.0"))
	out, err := verifyRelease(t.Context(), r, r.Key+".pub")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"signature  ok  fairlead_0.2.0.sigstore.json: v0.2.0, commit ",
		"files      ok  ", "checksums  ok  checksums.txt lists the same ",
		"archives   ok  6 archives hold the program and the platform of their names",
		"images     ok  3 images hold the programs of the archives",
		"sboms      ok  9 bills of materials list every module of their programs, 2 in all, with licences",
		"versions   ok  fairlead-operator, fairlead-server, fairlead print 0.2.0 and the commit on ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

func TestRun_RefusesChangedFile(t *testing.T) {
	t.Parallel()
	r := sign(t, build(t, "v0.2.0"))
	older := sign(t, begin(t, "v0.1.0"))
	archive := r.Archive("fairlead", r.Platforms[0])
	for _, c := range []struct {
		name   string
		change func(dist string) error
		want   string
	}{
		{"changed byte", func(dist string) error {
			return flip(filepath.Join(dist, archive))
		}, archive + " was changed"},
		{"changed name", func(dist string) error {
			return os.Rename(filepath.Join(dist, archive), filepath.Join(dist, "fairlead_0.3.0.tar.gz"))
		}, "fairlead_0.3.0.tar.gz is not a file of the signed release v0.2.0; its content was signed as " + archive},
		{"two names swapped", func(dist string) error {
			return swap(filepath.Join(dist, archive), filepath.Join(dist, r.Archive("fairlead", r.Platforms[1])))
		}, "_" + r.Platforms[0].OS + "_"},
		{"changed cluster", func(dist string) error {
			return flip(filepath.Join(dist, "fairlead_0.2.0_cluster_linux_amd64.tar.gz"))
		}, "fairlead_0.2.0_cluster_linux_amd64.tar.gz was changed"},
		{"file added", func(dist string) error {
			return os.WriteFile(filepath.Join(dist, "install.sh"), nil, 0o600)
		}, "install.sh is not a file of the signed release"},
		{"folder added", func(dist string) error {
			return os.Mkdir(filepath.Join(dist, "bin"), 0o700)
		}, "bin is not a file"},
		{"file removed", func(dist string) error {
			return os.Remove(filepath.Join(dist, archive))
		}, archive + " is missing"},
		{"checksums changed", func(dist string) error {
			return flip(filepath.Join(dist, "checksums.txt"))
		}, "checksums.txt was changed"},
		{"bundle truncated", func(dist string) error {
			return os.Truncate(filepath.Join(dist, r.Signature()), 100)
		}, r.Signature() + " is not a Sigstore bundle"},
		{"bundle removed", func(dist string) error {
			return os.Remove(filepath.Join(dist, r.Signature()))
		}, "it has no file fairlead_VERSION.sigstore.json"},
		{"bundle of another release", func(dist string) error {
			return copyFile(older.Path(older.Signature()), filepath.Join(dist, r.Signature()))
		}, r.Signature() + " is not by the key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			copied := copyOf(t, r)
			must(t, c.change(copied.Dist))
			requireRefused(t, copied, r.Key+".pub", c.want)
		})
	}
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		requireRefused(t, r, older.Key+".pub", "fairlead_0.2.0.sigstore.json is not by the key in "+older.Key+".pub")
	})
}

// requireRefused fails the test unless the release is refused in one line that holds want.
func requireRefused(t *testing.T, r *release.Release, key, want string) {
	t.Helper()
	out, err := verifyRelease(t.Context(), r, key)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q\n%s", err, want, out)
		return
	}
	if strings.Contains(err.Error(), "\n") || !strings.HasSuffix(out, " FAILED\n") {
		t.Errorf("want one sentence, and a last line that says FAILED:\n%v\n%s", err, out)
	}
}

func TestRun_RefusesFolderWithoutRelease(t *testing.T) {
	t.Parallel()
	dist := filepath.Join(t.TempDir(), "none")
	err := Run(t.Context(), Options{Dist: dist, Out: t.Output()})
	if want := "no release in " + dist; err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "`make release`") {
		t.Errorf("got %v, want %q and the target that makes one", err, want)
	}
}

func TestRun_RefusesTheSignatureOfAnotherVersion(t *testing.T) {
	t.Parallel()
	r := sign(t, begin(t, "v0.1.0"))
	must(t, os.Rename(r.Path(r.Signature()), r.Path("fairlead_0.2.0.sigstore.json")))
	requireRefused(t, r, r.Key+".pub", "fairlead_0.2.0.sigstore.json is the signature of another release, v0.1.0")
}

func TestRun_RefusesBadlySignedRelease(t *testing.T) {
	t.Parallel()
	r, older := build(t, "v0.2.0"), build(t, "v0.1.0")
	archive := func(r *release.Release, i int) string { return r.Path(r.Archive("fairlead", r.Platforms[i])) }
	for _, c := range []struct {
		name   string
		change func(r *release.Release) error
		want   string
	}{
		{"program of another platform", func(r *release.Release) error {
			return copyFile(archive(r, 1), archive(r, 0))
		}, "holds fairlead for linux/arm64: the name promises fairlead for "},
		{"another program", func(r *release.Release) error {
			return copyFile(r.Path(r.Archive("fairlead-server", r.Platforms[0])), archive(r, 0))
		}, "holds fairlead-server for "},
		{"image of another build", func(r *release.Release) error {
			const image = "fairlead-server_%s_image.tar"
			return copyFile(older.Path(fmt.Sprintf(image, "0.1.0")), r.Path(fmt.Sprintf(image, "0.2.0")))
		}, "fairlead-server_0.2.0_image.tar holds another fairlead-server for linux/"},
		{"no bill of materials", func(r *release.Release) error {
			return os.Remove(archive(r, 1) + sbom.Suffix)
		}, "_arm64.tar.gz.cdx.json is missing"},
		{"bill of materials of another build", func(r *release.Release) error {
			return copyFile(archive(older, 1)+sbom.Suffix, archive(r, 1)+sbom.Suffix)
		}, "_arm64.tar.gz.cdx.json does not describe fairlead for linux/"},
		{"module left out", func(r *release.Release) error {
			return replace(archive(r, 0)+sbom.Suffix, `"bom-ref": "pkg:golang/std@`, `"bom-ref": "pkg:golang/none@`)
		}, ".cdx.json lacks the module std go1."},
		{"licence left out", func(r *release.Release) error {
			return replace(archive(r, 0)+sbom.Suffix, `"licenses"`, `"license"`)
		}, ".cdx.json names no licence of "},
		{"no archive", func(r *release.Release) error {
			return os.WriteFile(archive(r, 0), []byte("text"), 0o600)
		}, "fairlead_0.2.0_"},
		{"program of another version", func(r *release.Release) error {
			return copyFile(archive(older, 0), archive(r, 0))
		}, `fairlead --version prints "fairlead version 0.1.0 `},
		{"programs of another commit", func(r *release.Release) error {
			r.Commit = strings.Repeat("0", 40)
			return nil
		}, ", and the release is 0.2.0 of commit 0000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			copied := copyOf(t, r)
			must(t, c.change(copied))
			requireRefused(t, sign(t, copied), r.Key+".pub", c.want)
		})
	}
}

func TestCompare_NamesTheClusterAsNotRebuilt(t *testing.T) {
	t.Parallel()
	// A release whose clone was built without the test cluster, which its checksums.txt lists.
	with, without := releasetest.Begin(t, "linux/amd64"), releasetest.Begin(t, "linux/amd64")
	const archive, airgap = "fairlead_0.2.0_cluster_linux_amd64.tar.gz", "fairlead_0.2.0_airgap_linux_amd64.tar.gz"
	var digests []map[string]string
	for _, r := range []*release.Release{with, without} {
		must(t, r.Finish())
		must(t, os.WriteFile(r.Path(airgap), []byte("bundle"), 0o600))
		if r == with {
			must(t, os.WriteFile(r.Path(archive), []byte("cluster"), 0o600))
		}
		must(t, checksums.Write(t.Context(), r))
		all, err := signature.Digests(r.Dist)
		must(t, err)
		digests = append(digests, all)
	}
	var out strings.Builder
	c := &check{Options: Options{Dist: with.Dist, Out: &out}, signed: digests[0],
		source: signature.Source{Version: "v0.2.0", Commit: with.Commit}}
	if err := c.compare(digests[1]); err != nil || !strings.Contains(out.String(), "--  not rebuilt: "+archive+";") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for name, digest := range map[string]string{airgap: "other", release.Checksums: "other", "added": "1"} {
		built := maps.Clone(digests[1])
		built[name] = digest
		if err := c.compare(built); err == nil || !strings.HasSuffix(err.Error(), " gives other bytes: "+name) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// flip changes the last byte of a file.
func flip(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	data[len(data)-1] ^= 1
	return os.WriteFile(name, data, 0o600)
}

func replace(name, old, replacement string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(strings.ReplaceAll(string(data), old, replacement)), 0o600)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

func swap(a, b string) error {
	first, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	if err := copyFile(b, a); err != nil {
		return err
	}
	return os.WriteFile(b, first, 0o600)
}

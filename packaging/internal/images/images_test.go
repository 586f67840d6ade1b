// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

var both = []release.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}

// write makes the images of a release whose programs are their own names.
func write(t *testing.T, version string) *release.Release {
	t.Helper()
	r := &release.Release{Version: version, Commit: strings.Repeat("c", 40), Dist: t.TempDir(),
		Time: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), Platforms: both}
	for _, p := range Platforms(r) {
		for _, i := range All() {
			path := r.Binary(i.Program, p)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(i.Program+" for "+p.Arch), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// read returns the only item of an archive.
func read(t *testing.T, path string) (string, v1.ImageIndex) {
	t.Helper()
	items, err := ociarchive.Read(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 1 {
		t.Fatalf("%s holds %d items, want one index", path, len(items))
	}
	return items[0].Reference, items[0].Content.(v1.ImageIndex)
}

func TestWrite_IsReproducible(t *testing.T) {
	t.Parallel()
	a, b := write(t, "0.2.0"), write(t, "0.2.0")
	for _, i := range All() {
		first, err := os.ReadFile(a.Path(i.Archive(a.Version)))
		second, err2 := os.ReadFile(b.Path(i.Archive(b.Version)))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two archives of the same programs differ", i.Name)
		}
	}
}

// TestWrite_SurvivesRegistry pushes each archive to a registry, and pulls for one platform.
func TestWrite_SurvivesRegistry(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	r := write(t, "0.2.0")
	for _, i := range All() {
		_, index := read(t, r.Path(i.Archive(r.Version)))
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
		want, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/" + i.Name + ":0.2.0")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
		got, err := remote.Index(ref, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := got.Digest(); err != nil || digest != want {
			t.Errorf("%s: pulled %v (%v), pushed %v", i.Name, digest, err, want)
		}
		arm, err := remote.Image(ref, remote.WithContext(t.Context()),
			remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
		if err != nil {
			t.Fatal(err)
		}
		checkArm64(t, i, arm)
	}
}

// checkArm64 checks what a node of arm64 gets.
func checkArm64(t *testing.T, i Image, image v1.Image) {
	t.Helper()
	if err := validate.Image(image); err != nil {
		t.Errorf("%s: %v", i.Name, err)
	}
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != "arm64" || c.OS != "linux" || c.Config.User != "65532:65532" ||
		!slices.Equal(c.Config.Entrypoint, []string{"/" + i.Program}) {
		t.Errorf("%s: configuration %+v", i.Name, c)
	}
	for label, want := range map[string]string{"title": i.Name, "version": "0.2.0", "licenses": "Apache-2.0",
		"revision": strings.Repeat("c", 40), "created": "2026-11-22T01:02:03Z", "source": source} {
		if got := c.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("%s: label %s is %q, want %q", i.Name, label, got, want)
		}
	}
	files := extract(t, image)
	if got := string(files[i.Program]); got != i.Program+" for arm64" {
		t.Errorf("%s: the program is %q", i.Name, got)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(files[authoritiesPath]) {
		t.Errorf("%s: %s holds no certificate", i.Name, authoritiesPath)
	}
	if _, found := files[dataDir+"/"]; found != i.Data || len(c.Config.Volumes) > 0 != i.Data {
		t.Errorf("%s: data folder %v, volumes %v", i.Name, found, c.Config.Volumes)
	}
}

// extract returns the files of the image, and checks their times and owners.
func extract(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(content); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			owner := 0
			if h.Name == dataDir+"/" {
				owner = user
			}
			if h.Uid != owner || h.Gid != owner || !h.ModTime.Equal(time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)) {
				t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
			}
			if files[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

func TestWrite_NamesImages(t *testing.T) {
	t.Parallel()
	r := write(t, "0.2.0-rc.1")
	ref, index := read(t, r.Path("fairlead-agent_0.2.0-rc.1_image.tar"))
	if want := "ghcr.io/fairlead-dev/fairlead-agent:0.2.0-rc.1"; ref != want {
		t.Errorf("reference %s, want %s", ref, want)
	}
	if _, err := name.ParseReference(ref, name.StrictValidation); err != nil {
		t.Error(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
}

func TestWrite_MissingBinary(t *testing.T) {
	t.Parallel()
	r := &release.Release{Version: "0.2.0", Dist: t.TempDir(), Platforms: both}
	if err := Write(context.Background(), r); err == nil || !strings.Contains(err.Error(), "fairlead-operator") {
		t.Errorf("%v, want an error that names the image", err)
	}
}

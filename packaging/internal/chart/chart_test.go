// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/notes"
	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
)

func TestWrite_IsReproducible(t *testing.T) {
	t.Parallel()
	a, b := write(t), write(t)
	for _, c := range All() {
		for _, file := range []string{c.File(a.Version), c.Archive(a.Version)} {
			first, err := os.ReadFile(a.Path(file))
			second, err2 := os.ReadFile(b.Path(file))
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, second) {
				t.Errorf("%s: two packages of the same chart differ", file)
			}
		}
	}
}

// TestWrite_MatchesHelmPackage compares the package with that of `helm package`.
func TestWrite_MatchesHelmPackage(t *testing.T) {
	t.Parallel()
	r := write(t)
	for _, c := range All() {
		dir := t.TempDir()
		helm(t, "package", filepath.Join(r.Source, "charts", c.Name), "--destination", dir, "--version", r.Version)
		want, got := files(t, filepath.Join(dir, c.File(r.Version))), files(t, r.Path(c.File(r.Version)))
		delete(want, c.Name+"/"+metadataFile)
		delete(got, c.Name+"/"+metadataFile)
		if !maps.Equal(got, want) {
			t.Errorf("%s holds %v, and helm packs %v, or their contents differ", c.Name,
				slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// TestWrite_HelmAcceptsPackage checks that what a user installs renders, with images of the release.
func TestWrite_HelmAcceptsPackage(t *testing.T) {
	t.Parallel()
	r := write(t)
	values := map[string][]string{
		"fairlead-operator": {"--set", "api.url=https://fairlead.example.com", "--set", "credentials.apiKey=flk_a",
			"--set", "credentials.authtoken=flt_a"},
		"fairlead-server": {"--set", "baseURL=https://fairlead.example.com"},
	}
	for _, c := range All() {
		file := r.Path(c.File(r.Version))
		helm(t, append([]string{"lint", "--strict", file}, values[c.Name]...)...)
		rendered := helm(t, append([]string{"template", "x", file, "--kube-version", "1.36.0"}, values[c.Name]...)...)
		if want := images.Repository + c.Name + ":" + r.Version + `"`; !strings.Contains(rendered, want) {
			t.Errorf("%s does not run the image %s", c.Name, want)
		}
	}
}

// TestWrite_HelmPullsSameBytes pushes the OCI archives to a registry and pulls them with helm.
func TestWrite_HelmPullsSameBytes(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	r := write(t)
	for _, c := range All() {
		items, err := ociarchive.Read(r.Path(c.Archive(r.Version)), t.TempDir())
		if err != nil || len(items) != 1 || items[0].Reference != Repository+"/"+c.Name+":"+r.Version {
			t.Fatalf("%v, %+v", err, items)
		}
		ref, err := name.ParseReference(host + "/charts/" + c.Name + ":" + r.Version)
		if err == nil {
			err = remote.Write(ref, items[0].Content.(v1.Image), remote.WithContext(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		helm(t, "pull", "oci://"+host+"/charts/"+c.Name, "--version", r.Version, "--plain-http", "--destination", dir)
		want, err := os.ReadFile(r.Path(c.File(r.Version)))
		got, err2 := os.ReadFile(filepath.Join(dir, c.File(r.Version)))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: helm pulled other bytes than were pushed", c.Name)
		}
	}
}

func TestWrite_Metadata(t *testing.T) {
	t.Parallel()
	r := write(t)
	var m struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	text := files(t, r.Path("fairlead-operator-0.2.0-rc.1.tgz"))["fairlead-operator/"+metadataFile]
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if m.Version != r.Version || m.AppVersion != r.Version {
		t.Errorf("version %q, appVersion %q", m.Version, m.AppVersion)
	}
	items, err := ociarchive.Read(r.Path("fairlead-operator_0.2.0-rc.1_image.tar"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := items[0].Content.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"images":     "ghcr.io/fairlead-dev/fairlead-operator:0.2.0-rc.1@" + digest.String(),
		"license":    "Apache-2.0",
		"prerelease": "true",
		"crds":       "name: boundendpoints.bindings.fairlead.dev",
		"links":      "docs/run/README.md",
	} {
		if got := m.Annotations[artifactHub+name]; !strings.Contains(got, want) {
			t.Errorf("annotation %s lacks %q: %s", name, want, got)
		}
	}
	var changes []string
	err = yaml.Unmarshal([]byte(m.Annotations[artifactHub+"changes"]), &changes)
	if want, wrong := notes.Changes(r); !slices.Equal(changes, want) || errors.Join(err, wrong) != nil {
		t.Errorf("the annotation changes is %q, %v; want %q, %v", changes, err, want, wrong)
	}
}

// files returns the contents of a chart's package by name.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	compressed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(compressed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
	}
}

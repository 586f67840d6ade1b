// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sbom_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fairlead-dev/fairlead/packaging/internal/archive"
	"github.com/fairlead-dev/fairlead/packaging/internal/binaries"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
	"github.com/fairlead-dev/fairlead/packaging/internal/sbom"
)

func write(t *testing.T) *release.Release {
	t.Helper()
	r := releasetest.Begin(t, "linux/amd64", "linux/arm64", "windows/amd64")
	releasetest.WriteFile(t, r.Path(release.ThirdPartyLicenses), "licences\n")
	for _, step := range []func() error{
		func() error { return binaries.Write(t.Context(), r) },
		func() error { return archive.Write(t.Context(), r) },
		func() error { return images.Write(t.Context(), r) },
		func() error { return sbom.Write(t.Context(), r) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func read(t *testing.T, r *release.Release, name string) ([]byte, *cdx.BOM) {
	t.Helper()
	text, err := os.ReadFile(r.Path(name))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return text, &bom
}

func TestWrite(t *testing.T) {
	t.Parallel()
	r := write(t)
	t.Run("describes archives and images", func(t *testing.T) { testDescribes(t, r) })
	t.Run("is reproducible and gives each file a serial number", func(t *testing.T) { testReproducible(t, r) })
}

func testDescribes(t *testing.T, r *release.Release) {
	t.Helper()
	for name, want := range map[string][]string{
		"fairlead_0.2.0_windows_amd64.zip.cdx.json": {"executable for windows/amd64"},
		"fairlead-server_0.2.0_image.tar.cdx.json": {
			"executable for linux/amd64", "executable for linux/arm64", "etc/ssl/certs/ca-certificates.crt"},
	} {
		_, bom := read(t, r, name)
		described := []string{}
		licences := map[string]string{}
		for _, c := range *bom.Components {
			described = append(described, c.Description, c.Name)
			if c.Type == cdx.ComponentTypeLibrary {
				licences[c.PackageURL] = (*c.Licenses)[0].Expression
			}
		}
		for _, w := range want {
			if !strings.Contains(strings.Join(described, "\n"), w) {
				t.Errorf("%s lacks %q", name, w)
			}
		}
		purl := "pkg:golang/" + strings.ReplaceAll(releasetest.Module, " ", "@")
		if len(licences) != 2 || licences[purl] != "BSD-3-Clause" {
			t.Errorf("%s: modules %v, want %s and the standard library", name, licences, purl)
		}
		if bom.Metadata.Timestamp != "2026-11-22T10:20:30Z" || bom.Metadata.Component.Version != "0.2.0" {
			t.Errorf("%s: %+v, want the commit's time", name, bom.Metadata)
		}
	}
}

func testReproducible(t *testing.T, r *release.Release) {
	t.Helper()
	serials, texts := map[string]string{}, map[string][]byte{}
	entries, err := os.ReadDir(r.Dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), sbom.Suffix) {
			continue
		}
		text, bom := read(t, r, e.Name())
		texts[e.Name()] = text
		if other, twice := serials[bom.SerialNumber]; twice {
			t.Errorf("%s and %s have one serial number", e.Name(), other)
		}
		serials[bom.SerialNumber] = e.Name()
	}
	if len(serials) != 7+3 {
		t.Errorf("%d bills of materials, want one for each of 7 archives and 3 images", len(serials))
	}
	if err := sbom.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for name, before := range texts {
		if after, _ := read(t, r, name); !bytes.Equal(before, after) {
			t.Errorf("%s differs when it is written again", name)
		}
	}
}

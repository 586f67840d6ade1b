// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package airgap packs what a cluster without a network needs into one archive for each
// architecture of linux: images, charts, checksums and install.sh, which loads and installs them.
// What the packages images and chart wrote comes in.
package airgap

import (
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead-dev/fairlead/packaging/internal/chart"
	"github.com/fairlead-dev/fairlead/packaging/internal/checksums"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/tarball"
)

// script is the name of the program in the bundle.
const script = "install.sh"

//go:embed install.sh
var installScript string

// Name returns the name of the folder that the bundle of a platform unpacks to.
func Name(r *release.Release, p release.Platform) string {
	return "fairlead_" + r.Version + "_airgap_" + p.OS + "_" + p.Arch
}

// Write writes the bundle of each platform that has images into r's folder.
func Write(ctx context.Context, r *release.Release) error {
	for _, p := range images.Platforms(r) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeBundle(r, p); err != nil {
			return fmt.Errorf("bundle for %s: %w", p, err)
		}
	}
	return nil
}

func writeBundle(r *release.Release, p release.Platform) error {
	dir := r.BuildPath("airgap", p.Arch)
	if err := os.RemoveAll(r.BuildPath("airgap")); err != nil { // of a run that did not end
		return err
	}
	for _, folder := range []string{"images", "charts"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	for _, i := range images.All() {
		if err := writeImage(r, p, i, filepath.Join(dir, "images", i.Name+".tar")); err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
	}
	for _, c := range chart.All() {
		if err := copyFile(filepath.Join(dir, "charts", c.File(r.Version)), r.Path(c.File(r.Version))); err != nil {
			return err
		}
	}
	if err := copyFile(filepath.Join(dir, "LICENSE"), filepath.Join(r.Source, "LICENSE")); err != nil {
		return err
	}
	text := strings.NewReplacer("@VERSION@", r.Version, "@ARCH@", p.Arch).Replace(installScript)
	if err := os.WriteFile(filepath.Join(dir, script), []byte(text), 0o755); err != nil {
		return err
	}
	if err := writeChecksums(dir); err != nil {
		return err
	}
	return pack(r.Path(Name(r, p)+".tar.gz"), dir, Name(r, p), r.Time)
}

// writeImage writes the part of the image's archive that a platform needs.
func writeImage(r *release.Release, p release.Platform, i images.Image, path string) error {
	dir, err := os.MkdirTemp(r.BuildPath(), "airgap-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // BuildPath is removed, too
	items, err := ociarchive.Read(r.Path(i.Archive(r.Version)), dir)
	if err != nil {
		return err
	}
	if len(items) != 1 {
		return fmt.Errorf("%s holds %d items, want one", i.Archive(r.Version), len(items))
	}
	index, ok := items[0].Content.(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("%s holds no index", i.Archive(r.Version))
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		if d.Platform == nil || d.Platform.OS != p.OS || d.Platform.Architecture != p.Arch {
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return err
		}
		return ociarchive.Write(path, r.Time, ociarchive.Item{Reference: i.Reference(r.Version), Content: image,
			Docker: true})
	}
	return fmt.Errorf("%s holds no image for %s", i.Archive(r.Version), p)
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// writeChecksums writes the digests of all files of dir, sorted by name, as sha256sum does.
func writeChecksums(dir string) error {
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		digest, err := checksums.Digest(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", digest, filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, release.Checksums), []byte(list.String()), 0o644)
}

// pack writes the folder dir into a compressed tar file, as the folder name.
func pack(path, dir, name string, t time.Time) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	compressed := gzip.NewWriter(f)
	if err := tarball.Write(compressed, dir, name, t); err != nil {
		return err
	}
	return compressed.Close()
}

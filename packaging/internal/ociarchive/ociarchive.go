// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ociarchive writes and reads OCI archives: an OCI image layout in one tar file, as `ctr
// images import`, `docker load`, `podman load`, `skopeo` and `kind load image-archive` read it. The
// packages images, chart and airgap hand it what they made. The same content always gives the same
// bytes.
package ociarchive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/fairlead-dev/fairlead/packaging/internal/tarball"
)

// Annotations of a layout's entry. The first is the specification's, the second is what containerd
// names an image by.
const (
	annotationRef  = "org.opencontainers.image.ref.name"
	annotationName = "io.containerd.image.name"
)

// Item is an image, an index or another artifact, and the full reference it is stored under, such
// as example.test/tool:1.
type Item struct {
	Reference string
	Content   mutate.Appendable
	Docker    bool // for images: `docker load` before version 25 reads it, too
}

// Write writes an archive of the items to path. Files of the tar carry the time t. A file that
// exists is replaced; after an error there may be an incomplete one.
func Write(path string, t time.Time, items ...Item) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".oci-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing more can be done about it
	index := v1.ImageIndex(empty.Index)
	for _, item := range items {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: item.Content, Descriptor: v1.Descriptor{
			Annotations: map[string]string{annotationRef: item.Reference, annotationName: item.Reference}}})
	}
	if _, err := layout.Write(dir, index); err != nil {
		return fmt.Errorf("writing the layout of %s: %w", filepath.Base(path), err)
	}
	if err := writeDocker(dir, items); err != nil {
		return fmt.Errorf("describing the images of %s: %w", filepath.Base(path), err)
	}
	if err := pack(path, dir, t); err != nil {
		return fmt.Errorf("packing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// pack writes the files of dir into a tar file.
func pack(path, dir string, t time.Time) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return tarball.Write(f, dir, "", t)
}

// dockerImage is an item of manifest.json, what `docker load` reads in place of an image layout.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeDocker adds the file manifest.json with the items that ask for it.
func writeDocker(dir string, items []Item) error {
	var list []dockerImage
	for _, item := range items {
		image, ok := item.Content.(v1.Image)
		if !item.Docker || !ok {
			continue
		}
		m, err := image.Manifest()
		if err != nil {
			return err
		}
		described := dockerImage{Config: blob(m.Config), RepoTags: []string{item.Reference}}
		for _, layer := range m.Layers {
			described.Layers = append(described.Layers, blob(layer))
		}
		list = append(list, described)
	}
	if len(list) == 0 {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), b, 0o644)
}

// blob returns the name of a blob in a layout.
func blob(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }

// Read extracts the archive into dir, an empty folder, and returns its items, whose content is read
// from there. Names that lead out of dir are refused.
func Read(path, dir string) ([]Item, error) {
	if err := unpack(path, dir); err != nil {
		return nil, fmt.Errorf("reading the OCI archive %s: %w", path, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the OCI archive %s: %w", path, err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index of %s: %w", path, err)
	}
	var items []Item
	for _, d := range m.Manifests {
		item := Item{Reference: d.Annotations[annotationRef]}
		if d.MediaType.IsIndex() {
			item.Content, err = index.ImageIndex(d.Digest)
		} else {
			item.Content, err = index.Image(d.Digest)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", d.Digest, path, err)
		}
		items = append(items, item)
	}
	return items, nil
}

func unpack(path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("the name %q leads out of the archive", h.Name)
		}
		name := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = extract(name, r)
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func extract(name string, r io.Reader) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, r)
	return err
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ociarchive writes and reads OCI archives: an OCI image layout in one tar file, as `ctr
// images import`, `docker load`, `podman load`, `skopeo` and `kind load image-archive` read it. The
// packages images, chart and airgap hand it what they made. The same content always gives the same
// bytes.
package ociarchive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	if err := pack(path, dir, t); err != nil {
		return fmt.Errorf("packing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// pack writes the files of dir into a tar file, sorted by name, without owners.
func pack(path, dir string, t time.Time) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return add(w, name, filepath.ToSlash(rel), d.IsDir(), t)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func add(w *tar.Writer, path, name string, isDir bool, t time.Time) error {
	if isDir {
		return w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: t})
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: t, Size: st.Size()}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

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

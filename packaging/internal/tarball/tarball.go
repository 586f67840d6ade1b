// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tarball packs a folder into a tar file that holds nothing of the machine or the moment.
// Packages ociarchive and airgap hand it folders that they wrote.
package tarball

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// Write writes dir, which becomes the folder prefix of the tar file, or its top where prefix is
// empty. Entries are in the order of their names, belong to 0:0 and carry the time t; modes are
// 0755 for folders and programs, and 0644.
func Write(w io.Writer, dir, prefix string, t time.Time) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		name := path.Join(prefix, filepath.ToSlash(rel))
		if name == "." {
			return nil
		}
		return add(archive, file, name, t)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func add(w *tar.Writer, file, name string, t time.Time) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: t})
	}
	h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: t, Size: info.Size()}
	if info.Mode()&0o100 != 0 {
		h.Mode = 0o755
	}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

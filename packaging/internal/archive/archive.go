// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive packs each program of a release, with licence, README, man pages and completions,
// into a tar.gz, or a zip for Windows. Two runs give the same bytes: entries are sorted, owned by
// 0:0, and dated with the commit's time. What is packed was written by the packages binaries, manual
// and license.
package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// entry is a file of an archive.
type entry struct {
	name string // with slashes
	path string
	mode int64
}

// Write packs every program of r for each of its platforms.
func Write(ctx context.Context, r *release.Release) error {
	for _, program := range release.Programs() {
		for _, p := range r.PlatformsOf(program) {
			if err := ctx.Err(); err != nil {
				return err
			}
			files, err := entries(r, program, p)
			if err != nil {
				return err
			}
			if err := pack(r.Path(r.Archive(program, p)), files, r.Time); err != nil {
				return err
			}
		}
	}
	return nil
}

// entries returns the files of a program's archive, sorted by name.
func entries(r *release.Release, program string, p release.Platform) ([]entry, error) {
	binary := r.Binary(program, p)
	files := []entry{
		{name: filepath.Base(binary), path: binary, mode: 0o755},
		{name: "LICENSE", path: filepath.Join(r.Source, "LICENSE"), mode: 0o644},
		{name: "README.md", path: filepath.Join(r.Source, "README.md"), mode: 0o644},
		{name: release.ThirdPartyLicenses, path: r.Path(release.ThirdPartyLicenses), mode: 0o644},
	}
	for _, folder := range []string{"man", "completions"} {
		found, err := filepath.Glob(r.BuildPath(folder, program, "*"))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			files = append(files, entry{name: path.Join(folder, filepath.Base(file)), path: file, mode: 0o644})
		}
	}
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// pack writes an archive; the suffix of its name chooses the format.
func pack(name string, files []entry, t time.Time) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	write := writeTar
	if strings.HasSuffix(name, ".zip") {
		write = writeZip
	}
	if err := write(out, files, t); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

func writeTar(w io.Writer, files []entry, t time.Time) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: info.Size(), ModTime: t, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if err := appendFile(archive, f.path); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func writeZip(w io.Writer, files []entry, t time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: t}
		header.SetMode(os.FileMode(f.mode))
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if err := appendFile(file, f.path); err != nil {
			return err
		}
	}
	return archive.Close()
}

func appendFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	_, err = io.Copy(w, file)
	return err
}

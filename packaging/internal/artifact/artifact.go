// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package artifact reads the programs back out of a release's archives and images: their names,
// their bytes, and the platform and the modules that the Go linker wrote into them. Package verify
// checks them; package sbom describes them.
package artifact

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// maxProgram is the most bytes that a program or an image's layer may have when it is unpacked.
const maxProgram = 1 << 30

// Program is an executable of a release.
type Program struct {
	Name     string // without .exe
	Platform release.Platform
	Info     *buildinfo.BuildInfo
	SHA256   string
	Data     []byte
}

// Programs returns the programs that a .tar.gz or a .zip holds at its top level.
func Programs(name string) ([]Program, error) {
	var found []Program
	visit := func(file string, r io.Reader) error {
		p, err := readProgram(file, r)
		if p != nil {
			found = append(found, *p)
		}
		return err
	}
	read := readTarGzip
	if strings.HasSuffix(name, ".zip") {
		read = readZip
	}
	if err := read(name, visit); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s holds none of the programs %s",
			filepath.Base(name), strings.Join(release.Programs(), ", "))
	}
	return found, nil
}

// Executable returns a program that is a file.
func Executable(name string) (*Program, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	p, err := readProgram(filepath.Base(name), f)
	if err == nil && p == nil {
		err = errors.New("not the name of a program of a release")
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// readProgram returns nil when the file is not one of the programs of a release, by its name.
func readProgram(file string, r io.Reader) (*Program, error) {
	name := strings.TrimSuffix(file, ".exe")
	if !slices.Contains(release.Programs(), name) {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(r, maxProgram))
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Go program: %w", file, err)
	}
	digest := sha256.Sum256(data)
	p := &Program{Name: name, Info: info, SHA256: hex.EncodeToString(digest[:]), Data: data}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			p.Platform.OS = s.Value
		case "GOARCH":
			p.Platform.Arch = s.Value
		}
	}
	return p, nil
}

func readTarGzip(name string, visit func(string, io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return readTar(unzipped, visit)
}

// readTar visits regular files, by their names without a leading "./" or "/".
func readTar(r io.Reader, visit func(string, io.Reader) error) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := visit(strings.TrimPrefix(path.Clean(header.Name), "/"), archive); err != nil {
			return err
		}
	}
}

func readZip(name string, visit func(string, io.Reader) error) error {
	archive, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // likewise
	for _, file := range archive.File {
		r, err := file.Open()
		if err != nil {
			return err
		}
		if err := errors.Join(visit(file.Name, r), r.Close()); err != nil {
			return err
		}
	}
	return nil
}

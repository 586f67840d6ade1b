// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
)

// File is a regular file of an image's layer.
type File struct {
	Name   string // without a leading slash
	SHA256 string
}

// Image is what an OCI archive holds, over all its platforms.
type Image struct {
	Programs []Program // one for each platform
	Files    []File    // the others, sorted by name, each version once
}

// ReadImage reads an OCI archive from its index down to its layers, whose digests are compared.
func ReadImage(name string) (*Image, error) {
	image := &Image{}
	if err := image.readArchive(name); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	if len(image.Programs) == 0 {
		return nil, fmt.Errorf("%s holds no program of a release", filepath.Base(name))
	}
	slices.SortFunc(image.Files, func(a, b File) int { return strings.Compare(a.Name+a.SHA256, b.Name+b.SHA256) })
	image.Files = slices.Compact(image.Files)
	return image, nil
}

func (i *Image) readArchive(name string) error {
	dir, err := os.MkdirTemp("", "fairlead-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	items, err := ociarchive.Read(name, dir)
	if err != nil {
		return err
	}
	for _, item := range items {
		switch content := item.Content.(type) {
		case v1.ImageIndex:
			err = i.readIndex(content)
		case v1.Image:
			err = i.readLayers(content)
		default:
			err = fmt.Errorf("%s is neither an image nor an index", item.Reference)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (i *Image) readIndex(index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		if err := i.readLayers(image); err != nil {
			return err
		}
	}
	return nil
}

func (i *Image) readLayers(image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		unpacked, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		if err := errors.Join(readTar(unpacked, i.readFile), unpacked.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (i *Image) readFile(name string, r io.Reader) error {
	p, err := readProgram(filepath.Base(name), r)
	if err != nil {
		return err
	}
	if p != nil {
		i.Programs = append(i.Programs, *p)
		return nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		return err
	}
	i.Files = append(i.Files, File{Name: name, SHA256: hex.EncodeToString(hash.Sum(nil))})
	return nil
}

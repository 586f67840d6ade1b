// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart packs the Helm charts of a release: with its version, what Artifact Hub shows of
// it, and the digests of its images. The folders in charts/ and the archives that package images
// wrote come in; for each chart a .tgz as `helm package` makes it, and an OCI archive with what
// `helm push` would put into a registry, go out. Helm's own packages hold the time of packing;
// these are the same bytes each time.
package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Repository is where the charts of releases are published: helm's oci://REPOSITORY/NAME.
const Repository = "ghcr.io/fairlead-dev/charts"

// metadataFile is the file that describes a chart.
const metadataFile = "Chart.yaml"

// Chart is one of the product's charts.
type Chart struct {
	Name   string   // of its folder in charts/, too
	Images []string // the images that it runs
}

// All returns the charts of a release.
func All() []Chart {
	return []Chart{
		{Name: "fairlead-operator", Images: []string{"fairlead-operator"}},
		{Name: "fairlead-server", Images: []string{"fairlead-server"}},
	}
}

// File returns the name of the chart's package, as helm names it.
func (c Chart) File(version string) string { return c.Name + "-" + version + ".tgz" }

// Archive returns the name of the chart's OCI archive.
func (c Chart) Archive(version string) string { return c.Name + "-chart_" + version + "_oci.tar" }

// Write writes both files of each chart into r's folder.
func Write(ctx context.Context, r *release.Release) error {
	for _, c := range All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.write(r); err != nil {
			return fmt.Errorf("chart %s: %w", c.Name, err)
		}
	}
	return nil
}

func (c Chart) write(r *release.Release) error {
	metadata, err := c.metadata(r)
	if err != nil {
		return err
	}
	packed, err := c.pack(filepath.Join(r.Source, "charts", c.Name), metadata, r.Time)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.Path(c.File(r.Version)), packed, 0o644); err != nil {
		return err
	}
	artifact, err := newArtifact(metadata, packed, r.Time)
	if err != nil {
		return err
	}
	reference := Repository + "/" + c.Name + ":" + r.Version
	return ociarchive.Write(r.Path(c.Archive(r.Version)), r.Time,
		ociarchive.Item{Reference: reference, Content: artifact})
}

// pack returns the files of a chart's folder as helm packs them, with other metadata. Hidden files
// but .helmignore, and copies that editors leave, are left out, as .helmignore asks for.
func (c Chart) pack(folder string, metadata []byte, t time.Time) ([]byte, error) {
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	w := tar.NewWriter(compressed)
	put := func(name string, data []byte) error {
		h := tar.Header{Name: c.Name + "/" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)),
			ModTime: t}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	if err := put(metadataFile, metadata); err != nil { // first, as helm has it
		return nil, err
	}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || ignored(d.Name()) {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == metadataFile {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return put(filepath.ToSlash(name), data)
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func ignored(name string) bool {
	return strings.HasPrefix(name, ".") && name != ".helmignore" || strings.HasSuffix(name, "~")
}

// metadata returns Chart.yaml with the release's version and annotations.
func (c Chart) metadata(r *release.Release) ([]byte, error) {
	path := filepath.Join(r.Source, "charts", c.Name, metadataFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := yaml.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	annotations, err := c.annotations(r)
	if err != nil {
		return nil, err
	}
	have, _ := m["annotations"].(map[string]any) // absent where the file has none
	for name, value := range have {
		annotations[name] = fmt.Sprint(value)
	}
	m["version"], m["appVersion"], m["annotations"] = r.Version, r.Version, annotations
	return yaml.Marshal(m)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/notes"
	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// What Artifact Hub reads of a chart's annotations:
// https://artifacthub.io/docs/topics/annotations/helm/. Those that no release changes are in
// Chart.yaml.
const artifactHub = "artifacthub.io/"

// containerImage is an item of artifacthub.io/images.
type containerImage struct {
	Name      string   `json:"name"`
	Image     string   `json:"image"` // with its digest
	Platforms []string `json:"platforms"`
}

// customResource is an item of artifacthub.io/crds.
type customResource struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

// annotations returns what follows from the release.
func (c Chart) annotations(r *release.Release) (map[string]string, error) {
	digests, err := c.images(r)
	if err != nil {
		return nil, err
	}
	changes, err := notes.Changes(r)
	if err != nil {
		return nil, err
	}
	resources, err := customResources(filepath.Join(r.Source, "charts", c.Name, "files/crds"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{artifactHub + "prerelease": strconv.FormatBool(strings.Contains(r.Version, "-"))}
	for name, list := range map[string]any{"images": digests, "changes": changes, "crds": resources} {
		text, err := yaml.Marshal(list)
		if err != nil {
			return nil, err
		}
		if string(text) != "[]\n" {
			all[artifactHub+name] = string(text)
		}
	}
	return all, nil
}

// images returns the chart's images with the digests of the archives that the step images wrote.
func (c Chart) images(r *release.Release) ([]containerImage, error) {
	list := []containerImage{}
	for _, i := range images.All() {
		if !slices.Contains(c.Images, i.Name) {
			continue
		}
		digest, err := digestOf(r.Path(i.Archive(r.Version)))
		if err != nil {
			return nil, fmt.Errorf("finding the digest of the image %s: %w", i.Name, err)
		}
		image := containerImage{Name: i.Name, Image: i.Reference(r.Version) + "@" + digest.String()}
		for _, p := range images.Platforms(r) {
			image.Platforms = append(image.Platforms, p.String())
		}
		list = append(list, image)
	}
	return list, nil
}

// digestOf returns the digest of the one item of an archive.
func digestOf(archive string) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "fairlead-chart-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing more can be done about it
	items, err := ociarchive.Read(archive, dir)
	if err != nil {
		return v1.Hash{}, err
	}
	if len(items) != 1 {
		return v1.Hash{}, fmt.Errorf("%s holds %d items, want one", archive, len(items))
	}
	return items[0].Content.Digest()
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema struct{ Description string } }
		}
	}
}

// customResources returns the kinds that the folder's CustomResourceDefinitions define; none where
// there is no folder.
func customResources(folder string) ([]customResource, error) {
	list := []customResource{}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("reading %s: %w", e.Name(), err)
		}
		for _, v := range d.Spec.Versions {
			list = append(list, customResource{Kind: d.Spec.Names.Kind, Version: v.Name, Name: d.Metadata.Name,
				DisplayName: d.Spec.Names.Kind,
				Description: strings.Join(strings.Fields(v.Schema.OpenAPIV3Schema.Description), " ")})
		}
	}
	return list, nil
}

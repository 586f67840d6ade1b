// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Media types of helm's artifacts: https://helm.sh/docs/topics/registries/
const (
	mediaTypeConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	mediaTypeContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// artifact is a chart as registries hold it: an image manifest whose config is Chart.yaml as JSON,
// and whose one layer is the package.
type artifact struct {
	manifest, config []byte
	content          v1.Layer
}

// newArtifact returns the artifact of a chart with this Chart.yaml and package.
func newArtifact(metadata, packed []byte, t time.Time) (v1.Image, error) {
	a := artifact{content: static.NewLayer(packed, mediaTypeContent)}
	var err error
	if a.config, err = yaml.YAMLToJSON(metadata); err != nil {
		return nil, err
	}
	config, err := describe(a.config, mediaTypeConfig)
	if err != nil {
		return nil, err
	}
	content, err := describe(packed, mediaTypeContent)
	if err != nil {
		return nil, err
	}
	var c struct{ Name, Version, Description, Home string }
	if err := json.Unmarshal(a.config, &c); err != nil {
		return nil, err
	}
	const prefix = "org.opencontainers.image."
	a.manifest, err = json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config,
		Layers: []v1.Descriptor{content}, Annotations: map[string]string{
			prefix + "title": c.Name, prefix + "version": c.Version, prefix + "description": c.Description,
			prefix + "url": c.Home, prefix + "source": c.Home, prefix + "licenses": "Apache-2.0",
			prefix + "created": t.UTC().Format(time.RFC3339),
		}})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

func describe(b []byte, t types.MediaType) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(b))
	return v1.Descriptor{MediaType: t, Size: size, Digest: digest}, err
}

// MediaType returns that of the manifest.
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest returns the manifest.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile returns the chart's metadata.
func (a artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// LayerByDigest returns the package.
func (a artifact) LayerByDigest(want v1.Hash) (partial.CompressedLayer, error) {
	if got, err := a.content.Digest(); err != nil || got != want {
		return nil, fmt.Errorf("the chart has no layer %s", want)
	}
	return a.content, nil
}

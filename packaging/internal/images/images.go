// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images makes the container images of a release, without a container engine: the static
// binary of one program, the certificate authorities of the web, and nothing else, for linux on
// each architecture. Built binaries come in; one OCI archive with one index for each of the images
// goes out. The Dockerfile makes the same with an engine.
package images

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead-dev/fairlead/packaging/internal/ociarchive"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Repository is where the images of releases are published.
const Repository = "ghcr.io/fairlead-dev/"

// source is the address of the sources that images name.
const source = "https://github.com/fairlead-dev/fairlead"

// user is that of all images, and the owner of the server's data folder.
const user = 65532

// authoritiesPath is where Go's crypto/x509 looks for certificate authorities.
const authoritiesPath = "etc/ssl/certs/ca-certificates.crt"

// dataDir is where the server's image keeps its data.
const dataDir = "var/lib/fairlead"

// Image is one of the product's images.
type Image struct {
	Name        string // fairlead-operator
	Program     string // the binary, which is the entrypoint
	Description string
	Data        bool // the image has a volume for its data
}

// All returns the images of a release.
func All() []Image {
	return []Image{
		{Name: "fairlead-operator", Program: "fairlead-operator",
			Description: "Binds the private endpoints of a Fairlead account into a Kubernetes cluster"},
		{Name: "fairlead-server", Program: "fairlead-server", Data: true,
			Description: "The account service of Fairlead: API, tunnel ingress and edge"},
		{Name: "fairlead-agent", Program: "fairlead",
			Description: "The agent of Fairlead: forwards a port to an endpoint"},
	}
}

// Reference returns the image's full name of this version, such as
// ghcr.io/fairlead-dev/fairlead-agent:0.2.0.
func (i Image) Reference(version string) string { return Repository + i.Name + ":" + version }

// Archive returns the file name of the image's archive.
func (i Image) Archive(version string) string { return i.Name + "_" + version + "_image.tar" }

// Write writes the archive of each image into r's folder.
func Write(ctx context.Context, r *release.Release) error {
	platforms := Platforms(r)
	if len(platforms) == 0 {
		return nil // a release without linux has no images
	}
	for _, image := range All() {
		if err := ctx.Err(); err != nil {
			return err
		}
		index, err := image.Index(r, platforms)
		if err != nil {
			return err
		}
		item := ociarchive.Item{Reference: image.Reference(r.Version), Content: index}
		if err := ociarchive.Write(r.Path(image.Archive(r.Version)), r.Time, item); err != nil {
			return err
		}
	}
	return nil
}

// Platforms returns those of r that have images.
func Platforms(r *release.Release) []release.Platform {
	var linux []release.Platform
	for _, p := range r.Platforms {
		if p.OS == "linux" {
			linux = append(linux, p)
		}
	}
	return linux
}

// Index returns the image for the platforms as one index. Layers are in memory.
func (i Image) Index(r *release.Release, platforms []release.Platform) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := i.Image(r, p)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch}}})
	}
	return mutate.Annotations(index, i.annotations(r)).(v1.ImageIndex), nil
}

// Image returns the image for one platform, in memory.
func (i Image) Image(r *release.Release, p release.Platform) (v1.Image, error) {
	binary, err := os.ReadFile(r.Binary(i.Program, p))
	if err != nil {
		return nil, fmt.Errorf("reading the binary of the image %s: %w", i.Name, err)
	}
	program := []file{{name: i.Program, data: binary, mode: 0o755}}
	if i.Data {
		program = append(program, file{name: dataDir, mode: 0o755, owner: user, dir: true})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		content string
		files   []file
	}{
		{"certificate authorities", []file{{name: authoritiesPath, data: authorities(), mode: 0o644}}},
		{i.Program, program},
	} {
		layer, err := newLayer(r.Time, l.files)
		if err != nil {
			return nil, fmt.Errorf("making a layer of the image %s: %w", i.Name, err)
		}
		history := v1.History{Created: v1.Time{Time: r.Time}, CreatedBy: "make release", Comment: l.content}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, fmt.Errorf("adding a layer to the image %s: %w", i.Name, err)
		}
	}
	if image, err = i.configure(image, r, p); err != nil {
		return nil, fmt.Errorf("configuring the image %s: %w", i.Name, err)
	}
	return mutate.Annotations(image, i.annotations(r)).(v1.Image), nil
}

// configure sets what a container engine starts, as whom, and the labels.
func (i Image) configure(image v1.Image, r *release.Release, p release.Platform) (v1.Image, error) {
	c, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = p.OS, p.Arch, v1.Time{Time: r.Time}
	c.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/", Env: []string{"PATH=/"},
		Entrypoint: []string{"/" + i.Program}, Labels: i.annotations(r),
	}
	if i.Data {
		c.Config.Volumes = map[string]struct{}{"/" + dataDir: {}}
	}
	return mutate.ConfigFile(image, c)
}

// annotations returns the OCI annotations of the image, which are its labels too.
func (i Image) annotations(r *release.Release) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": i.Name, prefix + "description": i.Description, prefix + "version": r.Version,
		prefix + "revision": r.Commit, prefix + "created": r.Time.UTC().Format(time.RFC3339),
		prefix + "source": source, prefix + "licenses": "Apache-2.0", prefix + "vendor": "The Fairlead Authors",
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fairlead-dev/fairlead/packaging/internal/artifact"
	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/sbom"
)

const imageSuffix = "_image.tar"

// checkImages compares the programs in images with those in archives.
func (c *check) checkImages(ctx context.Context) (string, error) {
	count := 0
	for _, name := range sortedNames(c.signed) {
		if !strings.HasSuffix(name, imageSuffix) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		image, err := artifact.ReadImage(c.path(name))
		if err != nil {
			return "", err
		}
		for _, p := range image.Programs {
			in, err := c.program(c.archive(p))
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			if in.SHA256 != p.SHA256 {
				return "", fmt.Errorf("%s holds another %s for %s than %s", name, p.Name, p.Platform, c.archive(p))
			}
		}
		count++
	}
	return fmt.Sprintf("%d images hold the programs of the archives", count), nil
}

// archive returns the name of the archive that a program must be in.
func (c *check) archive(p artifact.Program) string {
	r := release.Release{Version: strings.TrimPrefix(c.source.Version, "v")}
	return r.Archive(p.Name, p.Platform)
}

// checkSBOMs compares each bill of materials with the modules in the programs that it describes.
func (c *check) checkSBOMs(ctx context.Context) (string, error) {
	count, modules := 0, map[string]bool{}
	for _, name := range sortedNames(c.signed) {
		var programs []artifact.Program
		var err error
		if strings.HasSuffix(name, imageSuffix) {
			var image *artifact.Image
			if image, err = artifact.ReadImage(c.path(name)); err == nil {
				programs = image.Programs
			}
		} else if c.matchArchive(name) != nil {
			programs, err = artifact.Programs(c.path(name))
		}
		if err != nil {
			return "", err
		}
		if len(programs) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if err := c.checkSBOM(name+sbom.Suffix, programs, modules); err != nil {
			return "", err
		}
		count++
	}
	return fmt.Sprintf("%d bills of materials list every module of their programs, %d in all, with licences",
		count, len(modules)), nil
}

// checkSBOM compares one bill of materials with the programs that it describes, and adds their
// modules to all.
func (c *check) checkSBOM(name string, programs []artifact.Program, all map[string]bool) error {
	f, err := os.Open(c.path(name))
	if err != nil {
		return fmt.Errorf("%s is missing: every archive and image has a bill of materials", name)
	}
	defer func() { _ = f.Close() }() // it was only read
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("%s is not a bill of materials in CycloneDX's JSON: %w", name, err)
	}
	if bom.Components == nil {
		return fmt.Errorf("%s lists no components", name)
	}
	listed := map[string]cdx.Component{}
	for _, component := range *bom.Components {
		listed[component.BOMRef] = component
	}
	for _, p := range programs {
		if _, ok := listed["file:"+p.Name+"@"+p.SHA256]; !ok {
			return fmt.Errorf("%s does not describe %s for %s", name, p.Name, p.Platform)
		}
		for _, m := range license.Modules(p.Info) {
			component, ok := listed[sbom.PackageURL(m)]
			switch {
			case !ok:
				return fmt.Errorf("%s lacks the module %s %s of %s", name, m.Path, m.Version, p.Name)
			case component.Licenses == nil || len(*component.Licenses) == 0:
				return fmt.Errorf("%s names no licence of %s", name, m.Path)
			}
			all[sbom.PackageURL(m)] = true
		}
	}
	return nil
}

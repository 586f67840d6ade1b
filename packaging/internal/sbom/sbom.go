// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sbom writes a bill of materials in CycloneDX's JSON beside every archive and image of a
// release, as NAME.cdx.json: the program, every module that the Go linker wrote into it, with sums
// and licences, and an image's other files. What is described is read from the archives and images
// themselves. Two runs give the same bytes: the time is that of the commit, and the serial number
// is derived from what is described.
package sbom

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fairlead-dev/fairlead/packaging/internal/artifact"
	"github.com/fairlead-dev/fairlead/packaging/internal/images"
	"github.com/fairlead-dev/fairlead/packaging/internal/license"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Suffix is appended to the name of what a bill of materials describes.
const Suffix = ".cdx.json"

const repository = "https://github.com/fairlead-dev/fairlead"

// Write writes the bills of materials of all archives and images of r.
func Write(ctx context.Context, r *release.Release) error {
	finder, err := license.NewFinder(ctx, r.Source)
	if err != nil {
		return err
	}
	for _, program := range release.Programs() {
		for _, p := range r.PlatformsOf(program) {
			if err := ctx.Err(); err != nil {
				return err
			}
			name := r.Archive(program, p)
			programs, err := artifact.Programs(r.Path(name))
			if err != nil {
				return err
			}
			subject := cdx.Component{Type: cdx.ComponentTypeApplication, Name: program}
			if err := write(r, finder, name, subject, programs, nil); err != nil {
				return err
			}
		}
	}
	return writeImages(r, finder)
}

func writeImages(r *release.Release, finder *license.Finder) error {
	for _, i := range images.All() {
		name := i.Archive(r.Version)
		if _, err := os.Stat(r.Path(name)); errors.Is(err, fs.ErrNotExist) {
			continue // a release without Linux has no images
		}
		image, err := artifact.ReadImage(r.Path(name))
		if err != nil {
			return err
		}
		subject := cdx.Component{Type: cdx.ComponentTypeContainer, Name: i.Name}
		if err := write(r, finder, name, subject, image.Programs, image.Files); err != nil {
			return err
		}
	}
	return nil
}

// write writes the bill of materials of one file of the release.
func write(r *release.Release, finder *license.Finder, name string, subject cdx.Component,
	programs []artifact.Program, files []artifact.File,
) error {
	bom, err := newBOM(r, finder, subject, programs, files)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	bom.SerialNumber = serial(name, r.Commit)
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).
		EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(r.Path(name+Suffix), text.Bytes(), 0o644)
}

// serial returns a UUID of version 8 that is the same for the same file of the same commit.
func serial(name, commit string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + commit))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func newBOM(r *release.Release, finder *license.Finder, subject cdx.Component,
	programs []artifact.Program, files []artifact.File,
) (*cdx.BOM, error) {
	subject.Version = r.Version
	subject.BOMRef = "pkg:golang/github.com/fairlead-dev/fairlead@v" + r.Version + "#" + subject.Name
	subject.Licenses = expression("Apache-2.0")
	subject.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: repository,
		Comment: "commit " + r.Commit}}
	modules, err := moduleComponents(finder, programs)
	if err != nil {
		return nil, err
	}
	depends := []string{}
	for _, m := range modules {
		depends = append(depends, m.BOMRef)
	}
	components := programComponents(r, programs)
	components = append(components, modules...)
	for _, f := range files {
		components = append(components, cdx.Component{
			BOMRef: "file:" + f.Name + "@" + f.SHA256, Type: cdx.ComponentTypeFile,
			Name: f.Name, Hashes: hashes(f.SHA256),
		})
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.Time.UTC().Format(time.RFC3339), Component: &subject}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &depends}}
	return bom, nil
}

// programComponents returns the executables, one for each platform.
func programComponents(r *release.Release, programs []artifact.Program) []cdx.Component {
	var components []cdx.Component
	for _, p := range programs {
		components = append(components, cdx.Component{
			BOMRef: "file:" + p.Name + "@" + p.SHA256, Type: cdx.ComponentTypeFile, Name: p.Name,
			Version: r.Version, Description: "executable for " + p.Platform.String(), Hashes: hashes(p.SHA256),
		})
	}
	return components
}

// moduleComponents returns the modules of the programs, each once, sorted by their package URLs.
func moduleComponents(finder *license.Finder, programs []artifact.Program) ([]cdx.Component, error) {
	var components []cdx.Component
	seen := map[string]bool{}
	for _, p := range programs {
		for _, m := range license.Modules(p.Info) {
			purl := PackageURL(m)
			if seen[purl] {
				continue
			}
			seen[purl] = true
			terms, err := finder.Licenses(m)
			if err != nil {
				return nil, err
			}
			component := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
				PackageURL: purl, Scope: cdx.ScopeRequired, Licenses: expression(terms.Expression())}
			if m.Sum != "" { // go.sum's digest is of a module's file list, not of a file: no CycloneDX hash
				component.Properties = &[]cdx.Property{{Name: "cdx:gomod:sum", Value: m.Sum}}
			}
			components = append(components, component)
		}
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	return components, nil
}

// PackageURL returns the package URL of a module, which package verify looks for.
func PackageURL(m license.Module) string {
	version := m.Version
	if m.Path == license.Standard {
		version = strings.TrimPrefix(version, "go")
	}
	return "pkg:golang/" + strings.ReplaceAll(m.Path, "+", "%2B") + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func expression(spdx string) *cdx.Licenses { return &cdx.Licenses{{Expression: spdx}} }

func hashes(sha string) *[]cdx.Hash { return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sha}} }

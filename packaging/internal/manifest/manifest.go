// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest writes what package managers download the agent by: a Homebrew formula, a krew
// manifest and, in releases for Windows, a Scoop manifest. Input: the agent's archives in dist/,
// whose digests are in them. Output: fairlead.rb, fairlead-krew.yaml and fairlead-scoop.json.
package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"text/template"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

const (
	program   = "fairlead"
	homepage  = "https://github.com/fairlead-dev/fairlead"
	downloads = homepage + "/releases/download/v"
)

// Names of the files in dist/.
const (
	Homebrew = "fairlead.rb"
	Krew     = "fairlead-krew.yaml"
	Scoop    = "fairlead-scoop.json"
)

//go:embed templates
var templates embed.FS

// download is an archive of the agent, and where it will be downloaded.
type download struct {
	OS, Arch string
	Homebrew string // its architecture in Homebrew's words
	Binary   string // the program's name in it
	URL      string
	SHA256   string
}

// system is the archives of an operating system that Homebrew runs on.
type system struct {
	Homebrew string
	Archives []download
}

// Write writes the manifests of r.
func Write(_ context.Context, r *release.Release) error {
	var archives []download
	for _, p := range r.PlatformsOf(program) {
		name := r.Archive(program, p)
		sum, err := digest(r.Path(name))
		if err != nil {
			return err
		}
		archives = append(archives, download{
			OS: p.OS, Arch: p.Arch, Homebrew: map[string]string{"amd64": "intel", "arm64": "arm"}[p.Arch],
			Binary: filepath.Base(r.Binary(program, p)), URL: downloads + r.Version + "/" + name, SHA256: sum,
		})
	}
	values := struct {
		Version  string
		Archives []download
		Systems  []system
	}{r.Version, archives, systems(archives)}
	for _, name := range []string{Homebrew, Krew} {
		parsed, err := template.ParseFS(templates, "templates/"+name)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := parsed.Execute(&text, values); err != nil {
			return err
		}
		if err := os.WriteFile(r.Path(name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return writeScoop(r, archives)
}

// systems returns the archives for macOS and Linux, each system that has one.
func systems(archives []download) (found []system) {
	for _, s := range []struct{ os, homebrew string }{{"darwin", "macos"}, {"linux", "linux"}} {
		next := system{Homebrew: s.homebrew}
		for _, a := range archives {
			if a.OS == s.os {
				next.Archives = append(next.Archives, a)
			}
		}
		if len(next.Archives) > 0 {
			found = append(found, next)
		}
	}
	return found
}

// scoopDownload is an architecture of a Scoop manifest.
type scoopDownload struct {
	URL  string `json:"url"`
	Hash string `json:"hash"`
}

// writeScoop writes the manifest for Scoop, unless the release has no archive for Windows.
func writeScoop(r *release.Release, archives []download) error {
	architecture := map[string]scoopDownload{}
	for _, a := range archives {
		if a.OS == "windows" {
			name := map[string]string{"amd64": "64bit", "arm64": "arm64"}[a.Arch]
			architecture[name] = scoopDownload{URL: a.URL, Hash: a.SHA256}
		}
	}
	if len(architecture) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(struct {
		Version      string                   `json:"version"`
		Description  string                   `json:"description"`
		Homepage     string                   `json:"homepage"`
		License      string                   `json:"license"`
		Architecture map[string]scoopDownload `json:"architecture"`
		Bin          string                   `json:"bin"`
		Checkver     string                   `json:"checkver"`
	}{
		r.Version, "Private endpoints from anywhere, bound into Kubernetes clusters", homepage, "Apache-2.0",
		architecture, program + ".exe", "github",
	}, "", "    ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.Path(Scoop), append(text, '\n'), 0o644)
}

func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

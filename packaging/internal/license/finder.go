// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package license

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
)

// Standard is the name under which Go's standard library stands beside modules.
const Standard = "std"

// Module is a module of a program, or Standard with the version of Go.
type Module struct {
	Path    string
	Version string
	Sum     string // as in go.sum; empty for Standard
}

// Modules returns what a program is built from: Standard first, then the modules that it needs, in
// the place of replaced ones those that replace them.
func Modules(info *debug.BuildInfo) []Module {
	all := []Module{{Path: Standard, Version: info.GoVersion}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		all = append(all, Module{Path: d.Path, Version: d.Version, Sum: d.Sum})
	}
	return all
}

// Finder finds the terms of modules in the module cache. It is for one goroutine.
type Finder struct {
	modCache string
	goRoot   string
	found    map[Module]Licenses
}

// NewFinder returns a Finder for the module cache and the Go that build the checkout in source.
func NewFinder(ctx context.Context, source string) (*Finder, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOROOT")
	cmd.Dir = source
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its module cache: %w", err)
	}
	modCache, goRoot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return &Finder{modCache: modCache, goRoot: goRoot, found: map[Module]Licenses{}}, nil
}

// Licenses returns the terms of a module, or an error that names the module when they are unknown
// or not permitted.
func (f *Finder) Licenses(m Module) (Licenses, error) {
	if known, ok := f.found[m]; ok {
		return known, nil
	}
	dir := f.goRoot
	if m.Path != Standard {
		path, err := module.EscapePath(m.Path)
		if err != nil {
			return Licenses{}, err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return Licenses{}, fmt.Errorf("module %s: %w", m.Path, err)
		}
		dir = filepath.Join(f.modCache, filepath.FromSlash(path)+"@"+version)
	}
	found, err := read(m.Path, dir)
	if err != nil {
		return Licenses{}, err
	}
	f.found[m] = found
	return found, nil
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const kubernetes = "k8s.io/kubernetes"

// ForKubernetes returns the cache with the kubenode of a minor version of Kubernetes, such as 1.34.
// Empty stands for the version of go.mod; the others have a MINOR.mod and MINOR.sum of their own in
// the folder kubernetes. All other parts are the same for every version.
func (c Cache) ForKubernetes(minor string) (Cache, error) {
	version, err := modVersion(c.Sources, kubernetes)
	if err != nil {
		return c, err
	}
	own := strings.TrimPrefix(version[:strings.LastIndex(version, ".")], "v")
	if minor == "" || minor == own {
		c.Kubernetes = ""
		return c, nil
	}
	mods, err := fs.Glob(c.Sources, "kubernetes/*.mod")
	if err != nil {
		return c, err
	}
	known := []string{own}
	for _, mod := range mods {
		known = append(known, strings.TrimSuffix(path.Base(mod), ".mod"))
	}
	if !slices.Contains(known, minor) {
		slices.Sort(known)
		return c, fmt.Errorf("no Kubernetes %q: want one of %s", minor, strings.Join(known, ", "))
	}
	c.Kubernetes = minor
	return c, nil
}

// moduleName names the module of a part among those that one build compiles.
func (c Cache) moduleName(p part) string {
	mod, _ := c.moduleFiles(p)
	return strings.TrimSuffix(path.Base(mod), ".mod")
}

// moduleFiles returns the names in Sources of the go.mod and go.sum of a part.
func (c Cache) moduleFiles(p part) (mod, sum string) {
	switch {
	case p.name == Helm4:
		return "helm/4.mod", "helm/4.sum"
	case p.name != Kubenode || c.Kubernetes == "":
		return "go.mod", "go.sum"
	}
	return path.Join("kubernetes", c.Kubernetes+".mod"), path.Join("kubernetes", c.Kubernetes+".sum")
}

// writeSources writes the module that a part is compiled from into the folder dir.
func (c Cache) writeSources(p part, dir string) error {
	mod, sum := c.moduleFiles(p)
	if mod == "go.mod" {
		return os.CopyFS(dir, c.Sources)
	}
	for _, folder := range p.sources {
		sub, err := fs.Sub(c.Sources, folder)
		if err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(dir, folder), sub); err != nil {
			return err
		}
	}
	goMod, err := fs.ReadFile(c.Sources, mod)
	goSum, err2 := fs.ReadFile(c.Sources, sum)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "go.mod"), goMod, 0o644),
		os.WriteFile(filepath.Join(dir, "go.sum"), goSum, 0o644))
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build compiles Kubernetes and the programs around it from the sources that the cluster
// program carries, and keeps them in a cache. A part's folder is named by a hash of all that its
// bytes depend on and appears by one rename, so what is there is whole and right; concurrent builds
// wait for one another.
package build

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The parts that are built and cached each on its own.
const (
	Kubenode = "kubenode" // etcd, the control plane, kubelet, kube-proxy: all that envtest needs
	Tools    = "tools"    // containerd, CNI plugins, kubectl
	Helm     = "helm"     // helm 3
	Helm4    = "helm4"    // helm 4, for the charts' tests alone
	Images   = "images"   // pause, CoreDNS and nettool as one archive
)

// PauseImage, CoreDNSImage and NettoolImage are the images of the archive in the part Images.
const (
	PauseImage   = "fairlead.test/pause:1"
	CoreDNSImage = "fairlead.test/coredns:1"
	NettoolImage = "fairlead.test/nettool:1"
)

const (
	containerd = "github.com/containerd/containerd/v2"
	helm       = "helm.sh/helm/v3"
	helm4      = "helm.sh/helm/v4"
	cniPlugins = "github.com/containernetworking/plugins/plugins"
)

// programs are the names that kubenode answers to.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

// All are the names of the parts of a cluster. Helm4 is no part of one.
func All() []string { return []string{Kubenode, Tools, Helm, Images} }

// part is one artifact: the packages to compile and the sources that its bytes depend on.
type part struct {
	name     string
	packages []string
	sources  []string // folders of the source tree, besides go.mod and go.sum
}

var parts = []part{
	{name: Kubenode, packages: []string{"./kubenode"}, sources: []string{"kubenode"}},
	{name: Tools, packages: []string{
		containerd + "/cmd/containerd", containerd + "/cmd/containerd-shim-runc-v2", containerd + "/cmd/ctr",
		"k8s.io/kubernetes/cmd/kubectl",
		cniPlugins + "/ipam/host-local", cniPlugins + "/main/ptp", cniPlugins + "/main/loopback",
		cniPlugins + "/meta/portmap",
	}},
	{name: Helm, packages: []string{helm + "/cmd/helm"}},
	{name: Helm4, packages: []string{helm4 + "/cmd/helm"}},
	{name: Images, packages: []string{"./coredns", "./images/pause", "./images/nettool"},
		sources: []string{"coredns", "images", "mkimage"}},
}

// Cache is where binaries are kept, and the sources that they are made from.
type Cache struct {
	Dir     string // holds one folder per part and hash
	Sources fs.FS  // the module of the cluster program: go.mod, go.sum, kubenode, kubernetes, …
	// Kubernetes is the minor version of kubenode; empty is that of go.mod. ForKubernetes sets it.
	Kubernetes string
}

// DefaultDir is $FAIRLEAD_CACHE/cluster, $XDG_CACHE_HOME/fairlead/cluster or
// ~/.cache/fairlead/cluster.
func DefaultDir() (string, error) {
	if d := os.Getenv("FAIRLEAD_CACHE"); d != "" {
		abs, err := filepath.Abs(d)
		return filepath.Join(abs, "cluster"), err
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", errors.New("no folder for the cache: set FAIRLEAD_CACHE or HOME")
	}
	return filepath.Join(d, "fairlead", "cluster"), nil
}

// PartDir is the folder of one part, whether it is there or not. For Kubenode it suits
// KUBEBUILDER_ASSETS.
func (c Cache) PartDir(name string) (string, error) {
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		return "", fmt.Errorf("no part %q: want one of %s", name, strings.Join(append(All(), Helm4), ", "))
	}
	sum, err := c.hash(parts[i])
	if err != nil {
		return "", err
	}
	return filepath.Join(c.Dir, name+"-"+sum), nil
}

// Missing names those of the parts that are not in the cache.
func (c Cache) Missing(names ...string) ([]string, error) {
	var missing []string
	for _, name := range names {
		dir, err := c.PartDir(name)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// hash covers the module's versions, the part's own sources, the toolchain and the flags.
func (c Cache) hash(p part) (string, error) {
	mod, sum := c.moduleFiles(p)
	files := []string{mod, sum}
	for _, dir := range p.sources {
		err := fs.WalkDir(c.Sources, dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("reading the sources of %s: %w", p.name, err)
		}
	}
	slices.Sort(files)
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, p.packages, buildFlags)
	for _, name := range files {
		b, err := fs.ReadFile(c.Sources, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(b))
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16], nil
}

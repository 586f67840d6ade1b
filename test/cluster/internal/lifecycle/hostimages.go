// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/preflight"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
	"github.com/fairlead-dev/fairlead/test/cluster/mkimage"
)

// hostImage is an image that is made of this machine's programs and their libraries.
type hostImage struct {
	name     string
	user     string // numeric; empty means 65532:65532
	programs []hostProgram
}

// hostProgram is one program of such an image.
type hostProgram struct {
	dest string // absolute path in the image
	name string // in PATH of this machine
	pkg  string // the Debian package that holds it
}

// curlImage is there in every cluster.
var curlImage = hostImage{name: "fairlead.test/curl:1", programs: []hostProgram{
	{"/usr/bin/curl", "curl", "curl"},
	{"/usr/bin/bash", "bash", "bash"},
	{"/usr/bin/sleep", "sleep", "coreutils"},
}}

// multiClusterImages stand in for the images that the conformance suite of the Multi-Cluster
// Services API runs. They hold what its commands use, and run as root, as the originals do.
var multiClusterImages = []hostImage{
	{name: "docker.io/alpine/socat:1.7.4.4", user: "0:0", programs: []hostProgram{
		{"/bin/sh", "sh", "dash"},
		{"/usr/bin/awk", "awk", "mawk"},
		{"/usr/bin/grep", "grep", "grep"},
		{"/usr/bin/socat", "socat", "socat"},
		{"/usr/bin/tr", "tr", "coreutils"},
	}},
	{name: "docker.io/nicolaka/netshoot:v0.15", user: "0:0", programs: []hostProgram{
		{"/bin/sh", "sh", "dash"},
		{"/usr/bin/awk", "awk", "mawk"},
		{"/usr/bin/grep", "grep", "grep"},
		{"/usr/bin/nc", "nc.openbsd", "netcat-openbsd"},
		{"/usr/bin/nslookup", "nslookup", "bind9-dnsutils"},
		{"/usr/bin/sleep", "sleep", "coreutils"},
		{"/usr/bin/tail", "tail", "coreutils"},
	}},
}

// hostImages are the images of a cluster that are made of this machine's programs.
func hostImages(o state.Options) []hostImage {
	images := []hostImage{curlImage}
	if o.MultiCluster {
		images = append(images, multiClusterImages...)
	}
	return images
}

// needed are the programs of images.
func needed(images []hostImage) []preflight.Program {
	var programs []preflight.Program
	for _, img := range images {
		for _, p := range img.programs {
			if !slices.ContainsFunc(programs, func(q preflight.Program) bool { return q.Name == p.name }) {
				programs = append(programs, preflight.Program{Name: p.name, Package: p.pkg,
					Why: "it is packed into the image " + img.name})
			}
		}
	}
	return programs
}

// packHostImages writes an archive for each image into a new folder.
func packHostImages(ctx context.Context, dir string, images []hostImage) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for i, img := range images {
		if err := img.pack(ctx, filepath.Join(dir, fmt.Sprintf("%d.tar", i))); err != nil {
			return fmt.Errorf("packing the image %s: %w", img.name, err)
		}
	}
	return nil
}

func (img hostImage) pack(ctx context.Context, dest string) error {
	var files []mkimage.File
	seen := map[string]bool{}
	for _, p := range img.programs {
		path, err := exec.LookPath(p.name)
		if err != nil {
			return err
		}
		files = append(files, mkimage.File{Dest: p.dest, Src: path})
		libs, err := libraries(ctx, path)
		if err != nil {
			return err
		}
		for _, lib := range libs {
			if !seen[lib] {
				seen[lib] = true
				files = append(files, mkimage.File{Dest: lib, Src: lib})
			}
		}
	}
	f, err := os.Create(dest)
	if err != nil {
		return err
	}
	err = mkimage.Write(f, mkimage.Options{User: img.user}, mkimage.Image{Name: img.name, Files: files})
	return errors.Join(err, f.Close())
}

// libraries are the shared libraries of a program, its loader included, by their absolute paths.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("finding the libraries of %s: %w", program, err)
	}
	return parseLdd(string(out))
}

func parseLdd(out string) ([]string, error) {
	var libs []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, "not found") {
			return nil, fmt.Errorf("a library is missing: %s", line)
		}
		if _, path, ok := strings.Cut(line, " => "); ok {
			line = path
		}
		if path, _, _ := strings.Cut(line, " "); strings.HasPrefix(path, "/") {
			libs = append(libs, path)
		}
	}
	return libs, nil
}

// tail is the end of a small log.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

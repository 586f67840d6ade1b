// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/fairlead-dev/fairlead/test/cluster/mkimage"
)

// CurlImage holds curl, bash and sleep as this machine has them.
const CurlImage = "fairlead.test/curl:1"

// packHostImages writes the archive of images that are made of this machine's programs.
func packHostImages(ctx context.Context, dest string) error {
	var files []mkimage.File
	seen := map[string]bool{}
	for _, name := range []string{"curl", "bash", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		files = append(files, mkimage.File{Dest: "/usr/bin/" + name, Src: path})
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
	err = mkimage.Write(f, mkimage.Options{}, mkimage.Image{Name: CurlImage, Files: files})
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

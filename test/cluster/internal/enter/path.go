// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package enter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lookPath finds a program along the PATH of env, in the file system of the calling thread.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var path string
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("no program %q in %s", name, path)
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package authority

import (
	"io/fs"
	"os"
)

// restrict sets the mode of a file, whatever the umask is.
func restrict(name string, mode fs.FileMode) error { return os.Chmod(name, mode) }

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version owns the version of this build. The linker sets it; the commands print it and the
// tunnel and the API report it.
package version

import "runtime/debug"

// version is set at link time with -X; a plain `go build` leaves the default.
var version = "0.0.0-dev"

// String returns the semantic version of this build.
func String() string { return version }

// Revision returns the commit of this build, when Go recorded it, or "unknown".
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

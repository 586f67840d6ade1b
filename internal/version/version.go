// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version owns the version and the revision of this build. The linker sets them; the
// commands print them, and the tunnel and the API report the version.
package version

import "runtime/debug"

// version and revision are set at link time with -X; a plain `go build` leaves the defaults.
var (
	version  = "0.0.0-dev"
	revision = ""
)

// String returns the semantic version of this build.
func String() string { return version }

// Revision returns the commit of this build: that of the linker, else the one that Go recorded, else
// "unknown".
func Revision() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

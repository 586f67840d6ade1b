// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package linuxpackage writes the packages of agent and server for Debian (deb), Fedora and its kin
// (rpm) and Alpine (apk). Input: their programs, manual pages and completions, and from the checkout
// packaging/systemd and packaging/linux. Output: one package each in dist/, with the same bytes for
// the same commit. Installing one makes nothing run; settings in /etc/fairlead are kept.
package linuxpackage

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// format is a kind of package.
type format struct {
	name    string // as nfpm names it
	systemd bool   // whether its systems run systemd
	zsh     string // the directory of completions for zsh
	write   func(info *nfpm.Info, w io.Writer) error
}

func formats() []format {
	return []format{
		{"deb", true, "/usr/share/zsh/vendor-completions/", deb.Default.Package},
		{"rpm", true, "/usr/share/zsh/site-functions/", rpm.DefaultRPM.Package},
		{"apk", false, "/usr/share/zsh/site-functions/", apk.Default.Package},
	}
}

// Name returns the name of a package's file in dist/, for "deb", "rpm" or "apk" and Go's name of an
// architecture.
func Name(program, version, format, arch string) string {
	kernel := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	switch format {
	case "rpm":
		return fmt.Sprintf("%s-%s-1.%s.rpm", program, version, kernel)
	case "apk":
		return fmt.Sprintf("%s_%s_%s.apk", program, version, kernel)
	}
	return fmt.Sprintf("%s_%s_%s.deb", program, version, arch)
}

// Write writes every package of r, for Linux on its architectures.
func Write(ctx context.Context, r *release.Release) error {
	for _, program := range []string{"fairlead", "fairlead-server"} {
		tree, err := prepare(r, program)
		if err != nil {
			return fmt.Errorf("files of the packages of %s: %w", program, err)
		}
		for _, p := range r.PlatformsOf(program) {
			for _, f := range formats() {
				if err := ctx.Err(); err != nil {
					return err
				}
				if p.OS != "linux" {
					continue
				}
				path := r.Path(Name(program, r.Version, f.name, p.Arch))
				if err := writeFile(path, f, tree.info(r, f, p)); err != nil {
					return fmt.Errorf("%s of %s for %s: %w", f.name, program, p, err)
				}
			}
		}
	}
	return nil
}

func writeFile(path string, f format, info *nfpm.Info) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.write(info, out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// info returns the description of a package.
func (t *tree) info(r *release.Release, f format, p release.Platform) *nfpm.Info {
	info := &nfpm.Info{
		Name: t.program, Arch: p.Arch, Platform: "linux", Version: r.Version, Section: "net", Priority: "optional",
		Maintainer:  "The Fairlead Authors <fairlead-dev@users.noreply.github.com>",
		Vendor:      "The Fairlead Authors",
		Homepage:    "https://github.com/fairlead-dev/fairlead",
		License:     "Apache-2.0",
		Description: t.description(),
		MTime:       r.Time,
		// Names of files are no patterns.
		DisableGlobbing: true,
	}
	info.RPM.BuildHost = "localhost" // nfpm's default is the name of the building machine
	info.Contents = t.contents(r, f, p)
	if f.systemd {
		info.Scripts.PostInstall = t.path("postinstall.sh")
		info.Scripts.PreRemove = t.path("preremove.sh")
		info.Scripts.PostRemove = t.path("postremove.sh")
	}
	if f.name == "apk" {
		info.Version, info.VersionSchema = apkVersion(r.Version), "none"
	} else {
		info.Recommends = []string{"ca-certificates"}
	}
	return nfpm.WithDefaults(info)
}

// apkPrerelease is what Alpine's versions can say of a pre-release.
var apkPrerelease = regexp.MustCompile(`^(alpha|beta|pre|rc)\.?([0-9]*)$`)

// apkVersion returns a semantic version in the form of apk: 0.2.0-rc.1 is 0.2.0_rc1. A pre-release
// that apk has no word for is a "pre", which is older than the version.
func apkVersion(version string) string {
	number, prerelease, _ := strings.Cut(version, "-")
	if prerelease == "" {
		return number
	}
	if m := apkPrerelease.FindStringSubmatch(prerelease); m != nil {
		return number + "_" + m[1] + m[2]
	}
	return number + "_pre"
}

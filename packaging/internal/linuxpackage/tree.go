// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package linuxpackage

import (
	"bytes"
	"compress/gzip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// tree is the files of a program's packages that are made from others, in a folder.
type tree struct {
	program string
	folder  string
	pages   []string // names of the compressed manual pages
}

func (t *tree) path(name string) string { return filepath.Join(t.folder, name) }

// prepare writes the files of a program's packages: units for programs in /usr/bin, the maintainer
// scripts, compressed manual pages.
func prepare(r *release.Release, program string) (*tree, error) {
	t := &tree{program: program, folder: r.BuildPath("linux", program)}
	if err := os.MkdirAll(t.folder, 0o755); err != nil {
		return nil, err
	}
	packaging := filepath.Join(r.Source, "packaging")
	sources := []string{"systemd/" + program + ".service", "linux/postinstall.sh", "linux/preremove.sh",
		"linux/postremove.sh"}
	if program == "fairlead-server" {
		sources = append(sources, "systemd/fairlead-server-replica.conf")
	}
	for _, source := range sources {
		text, err := os.ReadFile(filepath.Join(packaging, source))
		if err != nil {
			return nil, err
		}
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
		text = bytes.ReplaceAll(text, []byte("@PROGRAM@"), []byte(program))
		if err := os.WriteFile(t.path(path.Base(source)), text, 0o644); err != nil {
			return nil, err
		}
	}
	pages, err := os.ReadDir(r.BuildPath("man", program))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(r.BuildPath("man", program, page.Name()))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(t.path(page.Name()+".gz"), compress(text), 0o644); err != nil {
			return nil, err
		}
		t.pages = append(t.pages, page.Name()+".gz")
	}
	slices.Sort(t.pages)
	return t, nil
}

// compress returns text as `gzip -9n` does: without name and time.
func compress(text []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

func (t *tree) description() string {
	if t.program == "fairlead-server" {
		return "Fairlead account service\n" +
			"The account API, the listener for agents and forwarders, and the edge that carries\n" +
			"their traffic: private endpoints from anywhere, bound into Kubernetes clusters."
	}
	return "Fairlead agent and command line\n" +
		"Makes a port of this machine a private endpoint that pods of Kubernetes clusters\n" +
		"can call. It dials the service; nothing has to reach this machine."
}

// contents returns the files of a package, each with its mode and the commit's time.
func (t *tree) contents(r *release.Release, f format, p release.Platform) files.Contents {
	var all files.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		all = append(all, &files.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.Time}})
	}
	add(r.Binary(t.program, p), "/usr/bin/"+t.program, "", 0o755)
	for _, page := range t.pages {
		add(t.path(page), "/usr/share/man/man1/"+page, "", 0o644)
	}
	completion := r.BuildPath("completions", t.program, t.program)
	add(completion+".bash", "/usr/share/bash-completion/completions/"+t.program, "", 0o644)
	add(completion+".zsh", f.zsh+"_"+t.program, "", 0o644)
	add(completion+".fish", "/usr/share/fish/vendor_completions.d/"+t.program+".fish", "", 0o644)

	documents := "/usr/share/doc/" + t.program + "/"
	linux := filepath.Join(r.Source, "packaging", "linux")
	licenses := "/usr/share/licenses/" + t.program + "/"
	if f.name == "deb" {
		licenses = documents
		add(filepath.Join(linux, "copyright"), documents+"copyright", "", 0o644)
	} else {
		add(filepath.Join(r.Source, "LICENSE"), licenses+"LICENSE", "", 0o644)
	}
	add(r.Path(release.ThirdPartyLicenses), licenses+release.ThirdPartyLicenses, "", 0o644)
	if !f.systemd {
		return all
	}
	add(t.path(t.program+".service"), "/usr/lib/systemd/system/"+t.program+".service", "", 0o644)
	add("", "/etc/fairlead", files.TypeDir, 0o755)
	settings := strings.TrimPrefix(t.program, "fairlead-")
	if t.program == "fairlead" {
		settings = "agent"
	}
	add(filepath.Join(linux, settings+".env"), "/etc/fairlead/"+settings+".env", files.TypeConfigNoReplace, 0o644)
	if t.program == "fairlead-server" {
		add(filepath.Join(linux, "fairlead-server.sysusers"), "/usr/lib/sysusers.d/fairlead-server.conf", "", 0o644)
		add(t.path("fairlead-server-replica.conf"), documents+"examples/replica.conf", "", 0o644)
	}
	return all
}

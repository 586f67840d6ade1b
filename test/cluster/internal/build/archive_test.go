// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// builtCache returns a cache whose parts have small files in the place of programs.
func builtCache(t *testing.T) Cache {
	t.Helper()
	c := Cache{Dir: t.TempDir(), Sources: sourceTree()}
	for _, name := range All() {
		dir := partDir(t, c, name)
		write := func(file string, mode os.FileMode) {
			file = filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(name+" "+file[len(dir):]), mode); err != nil {
				t.Fatal(err)
			}
		}
		write("sub/program", 0o755)
		write("data", 0o644)
		if err := os.Link(filepath.Join(dir, "sub/program"), filepath.Join(dir, "etcd")); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func partDir(t *testing.T, c Cache, name string) string {
	t.Helper()
	dir, err := c.PartDir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// saved returns a file that Save wrote.
func saved(t *testing.T, c Cache) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.tar.gz")
	if err := c.Save(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoad_InstallsWhatSaveWrote(t *testing.T) {
	t.Parallel()
	from := builtCache(t)
	file := saved(t, from)
	to := Cache{Dir: filepath.Join(t.TempDir(), "new"), Sources: from.Sources}
	var out bytes.Buffer
	if err := to.Load(t.Context(), &out, file, All()...); err != nil {
		t.Fatal(err)
	}
	for _, name := range All() {
		if !strings.Contains(out.String(), name+": taken from "+file+"\n") {
			t.Errorf("output %q, want what was taken", out.String())
		}
		dir := partDir(t, to, name)
		program, err := os.Stat(filepath.Join(dir, "sub/program"))
		if err != nil {
			t.Fatal(err)
		}
		link, err := os.Stat(filepath.Join(dir, "etcd"))
		if err != nil || !os.SameFile(program, link) {
			t.Errorf("etcd of %s: %v; want a hard link of the program", name, err)
		}
		if program.Mode() != 0o755 {
			t.Errorf("mode of %s: %v", name, program.Mode())
		}
		if text, err := os.ReadFile(filepath.Join(dir, "data")); err != nil || string(text) != name+" /data" {
			t.Errorf("data of %s: %q, %v", name, text, err)
		}
	}
	again, err := os.ReadFile(saved(t, to))
	if err != nil {
		t.Fatal(err)
	}
	if first, err := os.ReadFile(file); err != nil || !bytes.Equal(first, again) {
		t.Errorf("two files of the same parts differ (%v)", err)
	}
	wantEntries(t, to.Dir, 1+len(All()))
}

// wantEntries fails the test unless a cache holds its lock and parts, and nothing that is unfinished.
func wantEntries(t *testing.T, dir string, want int) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
		t.Errorf("%d entries in the cache, want %d: %v, %v", len(entries), want, entries, err)
	}
}

func TestLoad_LeavesOtherSourcesToTheCompiler(t *testing.T) {
	t.Parallel()
	from := builtCache(t)
	src := sourceTree()
	src["kubenode/main.go"].Data = []byte("package other")
	to := Cache{Dir: t.TempDir(), Sources: src}
	var out bytes.Buffer
	if err := to.Load(t.Context(), &out, saved(t, from), Kubenode, Helm); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "kubenode: not in ") || !strings.Contains(out.String(), "helm: taken from ") {
		t.Errorf("output %q, want a sentence about each part", out.String())
	}
	if missing, err := to.Missing(All()...); err != nil || strings.Join(missing, " ") != "kubenode tools images" {
		t.Errorf("missing %v, %v; want all but helm, which alone was asked for and is there", missing, err)
	}
}

func TestSave_RefusesMissingPart(t *testing.T) {
	t.Parallel()
	c := builtCache(t)
	if err := os.RemoveAll(partDir(t, c, Tools)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := c.Save(t.Context(), file); err == nil || err.Error() != "not built: tools; run `cluster build`" {
		t.Errorf("Save: %v", err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a file is left: %v", err)
	}
}

func TestLoad_RefusesHostileArchive(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(saved(t, builtCache(t)))
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Base(partDir(t, Cache{Sources: sourceTree()}, Kubenode))
	archive := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		compressed := gzip.NewWriter(&b)
		w := tar.NewWriter(compressed)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := compressed.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, tc := range map[string]struct {
		archive []byte
		want    string
	}{
		"truncated":     {whole[:len(whole)-9], "unexpected EOF"},
		"changed":       {append(bytes.Clone(whole[:len(whole)-8]), make([]byte, 8)...), "invalid checksum"},
		"not a tar.gz":  {[]byte("<html>404"), "taking parts from"},
		"path up":       {archive(tar.Header{Name: part + "/../../x", Typeflag: tar.TypeReg}), "want FOLDER/FILE"},
		"absolute path": {archive(tar.Header{Name: "/etc/x", Typeflag: tar.TypeReg}), "want FOLDER/FILE"},
		"file as part":  {archive(tar.Header{Name: part, Typeflag: tar.TypeReg}), "want FOLDER/FILE"},
		"link out": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeLink,
			Linkname: part + "/../../lock"}), "out of its folder"},
		"link to another part": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeLink,
			Linkname: "tools/ctr"}), "out of its folder"},
		"symbolic link": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeSymlink, Linkname: "etcd"}),
			"want files and hard links"},
		"device": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeChar}), "want files and hard links"},
		"the same file twice": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeReg},
			tar.Header{Name: part + "/x", Typeflag: tar.TypeReg}), "file exists"},
		"too large": {archive(tar.Header{Name: part + "/x", Typeflag: tar.TypeReg, Size: maxUnpacked + 1}),
			"more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, tc.archive, 0o600); err != nil {
				t.Fatal(err)
			}
			c := Cache{Dir: t.TempDir(), Sources: sourceTree()}
			if err := c.Load(t.Context(), t.Output(), file, All()...); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("Load: %v, want %q", err, tc.want)
			}
			wantEntries(t, c.Dir, 1)
		})
	}
}

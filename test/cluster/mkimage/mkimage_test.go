// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mkimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, data string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, opts Options, images ...Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, opts, images...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func entries(t *testing.T, archive []byte) ([]string, map[string][]byte) {
	t.Helper()
	var names []string
	files := map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s carries a time or an owner: %v %d:%d %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		names, files[h.Name] = append(names, h.Name), data
	}
}

func TestBuild_IsReproducible(t *testing.T) {
	t.Parallel()
	var got [2][]byte
	for i := range got {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "tool"), "program", 0o755)
		for _, n := range []string{"root/b", "root/a/x", "root/a/y"} {
			write(t, filepath.Join(dir, n), n, 0o644)
		}
		if err := os.Symlink("a/x", filepath.Join(dir, "root/link")); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "tool"), when, when); err != nil {
			t.Fatal(err)
		}
		got[i] = pack(t, Options{Arch: "amd64"}, Image{Name: "x.test/tool:1", Path: filepath.Join(dir, "tool")},
			Image{Name: "x.test/root:1", Path: filepath.Join(dir, "root")})
	}
	if !bytes.Equal(got[0], got[1]) {
		t.Error("two packings of the same files differ")
	}
}

func TestBuild_ArchiveIsOCILayout(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "tool")
	write(t, tool, "program", 0o700)
	_, files := entries(t, pack(t, Options{User: "1:2", Arch: "arm64"}, Image{Name: "x.test/tool:1", Path: tool}))
	var index struct{ Manifests []descriptor }
	read := func(name string, v any) {
		t.Helper()
		if err := json.Unmarshal(files[name], v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	blob := func(d descriptor) string { return "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:") }
	read("index.json", &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "x.test/tool:1" {
		t.Fatalf("index: %s", files["index.json"])
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(blob(index.Manifests[0]), &manifest)
	var config struct {
		Architecture string
		Config       struct {
			User       string
			Entrypoint []string
		}
	}
	read(blob(manifest.Config), &config)
	if config.Architecture != "arm64" || config.Config.User != "1:2" || !slices.Equal(config.Config.Entrypoint,
		[]string{"/tool"}) {
		t.Errorf("config: %+v", config)
	}
	names, layer := entries(t, files[blob(manifest.Layers[0])])
	if want := []string{"etc/", "etc/passwd", "tmp/", "tool"}; !slices.Equal(names, want) {
		t.Errorf("layer holds %q, want %q", names, want)
	}
	if string(layer["tool"]) != "program" {
		t.Errorf("tool holds %q", layer["tool"])
	}
}

func TestBuild_AddsParentFolders(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "f")
	write(t, src, "x", 0o644)
	_, files := entries(t,
		pack(t, Options{}, Image{Name: "x.test/f:1",
			Files: []File{{Dest: "/usr/lib/f", Src: src}, {Dest: "/usr/lib/g", Src: src}}}))
	for name, data := range files {
		if !strings.HasPrefix(name, "blobs/sha256/") || len(data) == 0 || data[0] == '{' {
			continue
		}
		names, _ := entries(t, data)
		if want := []string{"etc/", "etc/passwd", "tmp/", "usr/", "usr/lib/", "usr/lib/f",
			"usr/lib/g"}; !slices.Equal(names,
			want) {
			t.Errorf("layer holds %q, want %q", names, want)
		}
		return
	}
	t.Error("no layer found")
}

func TestParseImage_Invalid(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"tool":                   "want NAME=PATH",
		"=x":                     "want NAME=PATH",
		"a.test/tool=/dev/null":  "needs a tag",
		"a.test:5000/t=/dev/nul": "needs a tag",
		"a.test/t:1=/nowhere/x":  "no such file",
	} {
		if _, err := ParseImage(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseImage(%q) = %v, want an error with %q", arg, err, want)
		}
	}
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mkimage packs static binaries, or whole root folders, into one-layer container images
// without a container engine. Programs and folders come in; an OCI archive (an image layout in one
// tar file) goes out, which `ctr images import`, `docker load`, `podman load` and `kind load
// image-archive` read. The same input always gives the same bytes. They are images of tests; the
// product's are made by packaging/internal/images.
package mkimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Options hold for every image of an archive.
type Options struct {
	User string // numeric "uid:gid" that the image runs as; empty means 65532:65532
	Arch string // GOARCH of the binaries; empty means that of this machine
}

// Image is one image to pack. Exactly one of Path and Files is set.
type Image struct {
	Name  string // full reference with a tag: registry.test/name:1
	Path  string // a static binary, or a folder that becomes the root file system
	Files []File // single files of this machine, each at a place of its own
}

// File is one file of an image.
type File struct {
	Dest string // absolute path in the image
	Src  string // path on this machine; symbolic links are followed
}

// ParseImage reads NAME=PATH.
func ParseImage(arg string) (Image, error) {
	name, p, ok := strings.Cut(arg, "=")
	if !ok || name == "" || p == "" {
		return Image{}, fmt.Errorf("image %q: want NAME=PATH, such as example.test/tool:1=./tool", arg)
	}
	if base := name[strings.LastIndex(name, "/")+1:]; !strings.Contains(base, ":") {
		return Image{}, fmt.Errorf("image %q: the name %q needs a tag, such as %s:1", arg, name, name)
	}
	if _, err := os.Stat(p); err != nil {
		return Image{}, fmt.Errorf("image %q: reading %s: %w", arg, p, err)
	}
	return Image{Name: name, Path: p}, nil
}

// descriptor is an OCI content descriptor.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive collects the blobs of a layout by digest.
type archive struct{ blobs map[string][]byte }

func (a *archive) add(mediaType string, b []byte) descriptor {
	digest := fmt.Sprintf("%x", sha256.Sum256(b))
	a.blobs[digest] = b
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(b)}
}

func (a *archive) addJSON(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return a.add(mediaType, b), nil
}

// Write packs images into one archive. They are held in memory meanwhile.
func Write(w io.Writer, opts Options, images ...Image) error {
	if len(images) == 0 {
		return errors.New("no image to pack: give at least one NAME=PATH")
	}
	a := &archive{blobs: map[string][]byte{}}
	var manifests []descriptor
	for _, img := range images {
		d, err := a.image(opts, img)
		if err != nil {
			return fmt.Errorf("packing image %s: %w", img.Name, err)
		}
		manifests = append(manifests, d)
	}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests,
	})
	if err != nil {
		return err
	}
	t := newLayer(w)
	t.file("oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`))
	t.file("index.json", 0o644, index)
	t.dir("blobs", 0o755)
	t.dir("blobs/sha256", 0o755)
	digests := make([]string, 0, len(a.blobs))
	for d := range a.blobs {
		digests = append(digests, d)
	}
	slices.Sort(digests)
	for _, d := range digests {
		t.file("blobs/sha256/"+d, 0o644, a.blobs[d])
	}
	return t.close()
}

func (a *archive) image(opts Options, img Image) (descriptor, error) {
	layer, config, err := rootfs(img)
	if err != nil {
		return descriptor{}, err
	}
	config["User"], config["WorkingDir"] = opts.User, "/"
	if opts.User == "" {
		config["User"] = "65532:65532"
	}
	arch := opts.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	l := a.add("application/vnd.oci.image.layer.v1.tar", layer)
	c, err := a.addJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": arch, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}},
	})
	if err != nil {
		return descriptor{}, err
	}
	const manifest = "application/vnd.oci.image.manifest.v1+json"
	d, err := a.addJSON(manifest, map[string]any{
		"schemaVersion": 2, "mediaType": manifest, "config": c, "layers": []descriptor{l},
	})
	d.Annotations = map[string]string{"io.containerd.image.name": img.Name,
		"org.opencontainers.image.ref.name": img.Name}
	return d, err
}

// rootfs returns an image's layer and the part of its configuration that follows from its kind.
func rootfs(img Image) ([]byte, map[string]any, error) {
	var buf bytes.Buffer
	t := newLayer(&buf)
	shell := map[string]any{"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	if len(img.Files) > 0 {
		t.accounts()
		for _, f := range img.Files {
			t.copyFile(f.Dest, f.Src)
		}
		err := t.close()
		return buf.Bytes(), shell, err
	}
	st, err := os.Stat(img.Path)
	if err != nil {
		return nil, nil, err
	}
	if st.IsDir() {
		t.tree(img.Path)
		err := t.close()
		return buf.Bytes(), shell, err
	}
	base := filepath.Base(img.Path)
	t.accounts()
	t.copyFile(base, img.Path)
	err = t.close()
	return buf.Bytes(), map[string]any{"Entrypoint": []string{"/" + base}, "Env": []string{"PATH=/"}}, err
}

// layer writes a tar file whose headers hold nothing of the machine or the moment. Its first error
// stays.
type layer struct {
	tw   *tar.Writer
	dirs map[string]bool
	err  error
}

func newLayer(w io.Writer) *layer { return &layer{tw: tar.NewWriter(w), dirs: map[string]bool{}} }

func (l *layer) put(h tar.Header, data []byte) {
	if l.err != nil {
		return
	}
	h.Size, h.ModTime, h.Format = int64(len(data)), time.Unix(0, 0), tar.FormatPAX
	if l.err = l.tw.WriteHeader(&h); l.err == nil {
		_, l.err = l.tw.Write(data)
	}
}

func (l *layer) dir(name string, mode int64) {
	if !l.dirs[name] {
		l.dirs[name] = true
		l.put(tar.Header{Name: name + "/", Mode: mode, Typeflag: tar.TypeDir}, nil)
	}
}

func (l *layer) file(name string, mode int64, data []byte) {
	l.put(tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg}, data)
}

// copyFile adds one file of this machine, and the folders above it.
func (l *layer) copyFile(dest, src string) {
	data, err := os.ReadFile(src)
	st, err2 := os.Stat(src)
	if err = errors.Join(err, err2); err != nil {
		l.err = errors.Join(l.err, err)
		return
	}
	dest = strings.TrimPrefix(path.Clean(dest), "/")
	var parents []string
	for d := path.Dir(dest); d != "."; d = path.Dir(d) {
		parents = append(parents, d)
	}
	for _, d := range slices.Backward(parents) {
		l.dir(d, 0o755)
	}
	mode := int64(0o644)
	if st.Mode()&0o111 != 0 {
		mode = 0o755
	}
	l.file(dest, mode, data)
}

// accounts adds what a program expects of any root file system: two users and /tmp.
func (l *layer) accounts() {
	l.dir("etc", 0o755)
	l.file("etc/passwd", 0o644, []byte("root:x:0:0::/:\nnonroot:x:65532:65532::/:\n"))
	l.dir("tmp", 0o1777)
}

// tree adds a folder, in the order of its names; owners become root, symbolic links stay links.
func (l *layer) tree(root string) {
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, perm := filepath.ToSlash(rel), int64(info.Mode().Perm())
		switch {
		case d.IsDir():
			l.dir(name, perm)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			l.put(tar.Header{Name: name, Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink}, nil)
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			l.file(name, perm, data)
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a symbolic link", p)
		}
		return l.err
	})
	l.err = errors.Join(l.err, err)
}

func (l *layer) close() error {
	if l.err != nil {
		return l.err
	}
	return l.tw.Close()
}

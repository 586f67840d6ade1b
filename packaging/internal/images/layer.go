// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is one file or folder of an image.
type file struct {
	name  string // without a leading slash
	data  []byte
	mode  int64
	owner int // user and group
	dir   bool
}

// newLayer packs files, and the folders above them, into a compressed layer. All of it carries the
// time t.
func newLayer(t time.Time, files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	for _, f := range files {
		for _, dir := range parents(f.name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := put(w, file{name: dir, mode: 0o755, dir: true}, t); err != nil {
				return nil, err
			}
		}
		if err := put(w, f, t); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// parents returns the folders above a name, the outermost first.
func parents(name string) []string {
	var dirs []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

func put(w *tar.Writer, f file, t time.Time) error {
	h := tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: f.mode, Uid: f.owner, Gid: f.owner,
		Size: int64(len(f.data)), ModTime: t}
	if f.dir {
		h.Name, h.Typeflag = f.name+"/", tar.TypeDir
	}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := w.Write(f.data)
	return err
}

// authorities returns the certificate authorities of Mozilla in PEM, those of a pinned module
// rather than of the machine that builds. Authorities that Mozilla trusts for some certificates
// only are left out: a PEM file cannot say for which.
func authorities() []byte {
	var b strings.Builder
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return []byte(b.String())
}

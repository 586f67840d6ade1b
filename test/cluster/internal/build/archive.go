// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// maxUnpacked is the most bytes that the files of an archive may have together; those of all parts
// have 400 MB.
const maxUnpacked = 2 << 30

// Save writes all parts, which must be in the cache, into a tar.gz that Load reads. The same parts
// give the same bytes.
func (c Cache) Save(ctx context.Context, file string) (err error) {
	missing, err := c.Missing(All()...)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("not built: %s; run `cluster build`", strings.Join(missing, ", "))
	}
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file) // Load refuses half a file, too
		}
	}()
	compressed := gzip.NewWriter(f)
	archive := tar.NewWriter(compressed)
	for _, name := range All() {
		dir, err := c.PartDir(name)
		if err == nil {
			err = savePart(ctx, archive, dir)
		}
		if err != nil {
			return fmt.Errorf("saving %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// savePart adds the files of a part's folder, in the order of their names and without times, and
// programs that are links of one another as links.
func savePart(ctx context.Context, archive *tar.Writer, dir string) error {
	first := map[uint64]string{} // names by inode
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(filepath.Dir(dir), file)
		if err != nil {
			return err
		}
		h := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}
		if info.Mode()&0o100 != 0 {
			h.Mode = 0o755
		}
		inode := info.Sys().(*syscall.Stat_t).Ino
		if target := first[inode]; target != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, target, 0
			return archive.WriteHeader(&h)
		}
		first[inode] = name
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		_, err = io.Copy(archive, f)
		return err
	})
}

// Load takes those of the named parts that are not in the cache from a file that Save wrote, and
// tells out which ones it has not, since their sources, Go or architecture were others.
func (c Cache) Load(ctx context.Context, out io.Writer, file string, names ...string) error {
	return c.withMissing(ctx, out, names, func(work string, missing []string) error {
		dirs := map[string]string{} // parts' folders in the cache
		var folders []string
		for _, name := range missing {
			dir, err := c.PartDir(name)
			if err != nil {
				return err
			}
			dirs[name], folders = dir, append(folders, filepath.Base(dir))
		}
		if err := unpack(ctx, file, work, folders); err != nil {
			return fmt.Errorf("taking parts from %s: %w", file, err)
		}
		for _, name := range missing {
			err := os.Rename(filepath.Join(work, filepath.Base(dirs[name])), dirs[name])
			switch {
			case err == nil:
				_, _ = fmt.Fprintf(out, "%s: taken from %s\n", name, file)
			case errors.Is(err, fs.ErrNotExist):
				_, _ = fmt.Fprintf(out, "%s: not in %s as made of these sources with %s for %s; it is compiled\n",
					name, file, runtime.Version(), runtime.GOARCH)
			default:
				return err
			}
		}
		return nil
	})
}

// unpack writes the given folders of an archive into the folder work. It reads the archive to its
// end, and so its checksum.
func unpack(ctx context.Context, file, work string, folders []string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	compressed, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	archive := tar.NewReader(compressed)
	for left := int64(maxUnpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, compressed)
			return err
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("%q: its files have more than %d bytes", h.Name, maxUnpacked)
		}
		if err := unpackEntry(root, archive, h, folders); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

// unpackEntry writes a file or a hard link, if it is below one of the folders.
func unpackEntry(root *os.Root, content io.Reader, h *tar.Header, folders []string) error {
	folder, _, below := strings.Cut(h.Name, "/")
	link := h.Typeflag == tar.TypeLink
	switch {
	case !link && h.Typeflag != tar.TypeReg:
		return fmt.Errorf("kind %q: want files and hard links", h.Typeflag)
	case !below || !fs.ValidPath(h.Name):
		return errors.New("want FOLDER/FILE")
	case link && (!fs.ValidPath(h.Linkname) || !strings.HasPrefix(h.Linkname, folder+"/")):
		return fmt.Errorf("a link to %q, out of its folder", h.Linkname)
	case !slices.Contains(folders, folder):
		return nil
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return err
	}
	if link {
		return root.Link(h.Linkname, h.Name)
	}
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode)&0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The modes of private keys, and of other files.
const (
	Secret fs.FileMode = 0o600
	Public fs.FileMode = 0o644
)

// File is a file to be written.
type File struct {
	Name string
	Data []byte
	Mode fs.FileMode // Mode is Secret or Public.
}

// WriteFiles writes files into a folder; one that is not there is made, and only its owner may enter
// it. Without replace, none is written if one exists.
func WriteFiles(dir string, replace bool, files ...File) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil && !replace {
			return fmt.Errorf("%s exists in %s: choose another folder, or give --force to replace it", f.Name, dir)
		}
	}
	for _, f := range files {
		f.Name = filepath.Join(dir, f.Name)
		if err := f.Write(); err != nil {
			return err
		}
	}
	return nil
}

// Write writes or replaces the file in one step: readers find the old content or the new, whole, also
// after a crash.
func (f File) Write() (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(f.Name), "."+filepath.Base(f.Name)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // unless it was renamed
	if err = tmp.Chmod(f.Mode); err == nil {
		_, err = tmp.Write(f.Data)
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name, err)
	}
	return os.Rename(tmp.Name(), f.Name)
}

// parseFile returns what a file has; errors name it.
func parseFile[T any](name string, parse func(text string) (T, error)) (*T, error) {
	text, err := ReadFile(name)
	if err != nil {
		return nil, err
	}
	read, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &read, nil
}

const maxFile = 64 << 10

// ReadFile reads a file of at most 64 KiB.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: it has more than 64 KiB", name)
	}
	return text, err
}

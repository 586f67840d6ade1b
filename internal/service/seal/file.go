// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Read reads a key of 64 hexadecimal digits from a file. Its errors repeat nothing of the content.
func Read(path string) (*Key, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil,
			fmt.Errorf("secret key file %s: %w; `openssl rand -hex %d` makes one, for a store that has none yet",
				path, fs.ErrNotExist, KeySize)
	}
	if err != nil {
		return nil, fmt.Errorf("secret key file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, fmt.Errorf("reading secret key file %s: %w", path, err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != KeySize {
		return nil, fmt.Errorf("secret key file %s: must hold %d hexadecimal digits and nothing else; "+
			"`openssl rand -hex %d` makes them", path, 2*KeySize, KeySize)
	}
	return New(raw)
}

// ReadOrCreate reads the key in the file, and makes one with mode 0600 when there is no file.
// Concurrent calls return the same key.
func ReadOrCreate(path string) (*Key, error) {
	key, err := Read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := create(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making secret key file %s: %w", path, err)
	}
	return Read(path)
}

// create makes the file with a new key: whole and on disk, or not at all.
func create(path string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".secret-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(tmp.Name())) }()
	raw := make([]byte, KeySize)
	_, _ = rand.Read(raw) // crypto/rand.Read never returns an error
	_, err = tmp.WriteString(hex.EncodeToString(raw) + "\n")
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil { // does not replace a file
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

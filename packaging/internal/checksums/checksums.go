// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checksums writes checksums.txt: the SHA-256 digest of every other file of a release but
// its signature, in the form that `sha256sum --check` reads. It runs when the files of all steps
// before it are written; package signature signs the same names and digests.
package checksums

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// Write writes checksums.txt, sorted by name.
func Write(ctx context.Context, r *release.Release) error {
	entries, err := os.ReadDir(r.Dist)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == release.Checksums || e.Name() == r.Signature() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		digest, err := Digest(r.Path(e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", digest, e.Name())
	}
	return os.WriteFile(r.Path(release.Checksums), list.Bytes(), 0o644)
}

// Digest returns the SHA-256 digest of a file in hexadecimal.
func Digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

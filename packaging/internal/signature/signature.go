// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signature owns the signature of a release: the key pair, and the Sigstore bundle
// fairlead_VERSION.sigstore.json. The bundle holds one DSSE envelope with one in-toto statement,
// whose subjects are the name and SHA-256 of every file of the release and whose predicate is SLSA
// provenance. One statement for all files is on purpose: the signature of a single file does not
// cover its name, so an older release's file could take another one's place.
//
// In come the finished folder of a release and a key; package verify reads the statement back.
package signature

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore-go/pkg/verify"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

const (
	payloadType   = "application/vnd.in-toto+json"
	maxBundleFile = 16 << 20 // bytes
)

// Write signs every file of r.Dist with r.Key. It must be the last step: a file that is written or
// changed later makes the release invalid.
func Write(ctx context.Context, r *release.Release) error {
	key, err := loadKey(r.Key)
	if err != nil {
		return err
	}
	name := r.Signature()
	digests, err := Digests(r.Dist, name)
	if err != nil {
		return err
	}
	statement, err := newStatement(ctx, r, digests)
	if err != nil {
		return err
	}
	payload, err := protojson.Marshal(statement)
	if err != nil {
		return err
	}
	trusted, err := trustedKey(key.GetPublicKey())
	if err != nil {
		return err
	}
	signed, err := sign.Bundle(&sign.DSSEData{Data: payload, PayloadType: payloadType}, key,
		sign.BundleOptions{Context: ctx, TrustedRoot: trusted})
	if err != nil {
		return fmt.Errorf("signing %s: %w", name, err)
	}
	text, err := protojson.Marshal(signed)
	if err != nil {
		return err
	}
	return os.WriteFile(r.Path(name), append(text, '\n'), 0o644)
}

// Open returns the statement of a bundle after checking its signature with the public key in
// keyFile. It reads no network: neither a time stamp nor a transparency log entry is asked for.
func Open(file, keyFile string) (*intoto.Statement, error) {
	public, err := loadPublicKey(keyFile)
	if err != nil {
		return nil, err
	}
	text, err := readLimited(file, maxBundleFile)
	if err != nil {
		return nil, err
	}
	var signed bundle.Bundle
	if err := signed.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("%s is not a Sigstore bundle: %w", filepath.Base(file), err)
	}
	trusted, err := trustedKey(public)
	if err != nil {
		return nil, err
	}
	verifier, err := verify.NewVerifier(trusted, verify.WithNoObserverTimestamps())
	if err != nil {
		return nil, err
	}
	// The caller compares the subjects with the files: Sigstore compares digests, not names.
	result, err := verifier.Verify(&signed, verify.NewPolicy(verify.WithoutArtifactUnsafe(), verify.WithKey()))
	if err != nil {
		return nil, fmt.Errorf("the signature in %s is not by the key in %s: %w", filepath.Base(file), keyFile, err)
	}
	if result.Statement == nil {
		return nil, fmt.Errorf("%s holds no in-toto statement", filepath.Base(file))
	}
	return result.Statement, result.Statement.Validate()
}

// trustedKey returns verification material that trusts one key, whatever key a bundle names.
func trustedKey(public crypto.PublicKey) (root.TrustedMaterial, error) {
	verifier, err := sigstore.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	key := root.NewExpiringKey(verifier, time.Time{}, time.Time{})
	return root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return key, nil }), nil
}

// readLimited returns the content of a file of at most limit bytes.
func readLimited(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return text, errors.Join(err, f.Close())
}

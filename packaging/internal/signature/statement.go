// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fairlead-dev/fairlead/packaging/internal/checksums"
	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

const (
	// PredicateType names SLSA provenance, version 1.
	PredicateType = "https://slsa.dev/provenance/v1"
	repository    = "https://github.com/fairlead-dev/fairlead"
	buildType     = repository + "/blob/main/docs/build/releasing.md#signature-and-provenance"
	builderID     = repository + "/blob/main/Makefile#release"
)

// Digests returns the SHA-256 in hex of every file of a folder by name, but for the entries in
// except. A folder or a symbolic link in it is an error.
func Digests(dir string, except ...string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, entry := range entries {
		if slices.Contains(except, entry.Name()) {
			continue
		}
		if !entry.Type().IsRegular() {
			return nil, fmt.Errorf("%s is not a file of a release, which has no folders and no links: remove it",
				filepath.Join(dir, entry.Name()))
		}
		if digests[entry.Name()], err = checksums.Digest(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	return digests, nil
}

// newStatement returns SLSA provenance with every file as a subject, in the order of their names.
func newStatement(ctx context.Context, r *release.Release, digests map[string]string) (*intoto.Statement, error) {
	provenance, err := newProvenance(ctx, r)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(provenance)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	statement := &intoto.Statement{
		Type:          intoto.StatementTypeUri,
		PredicateType: PredicateType,
		Predicate:     predicate,
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{
			Name: name, Digest: map[string]string{"sha256": digests[name]},
		})
	}
	return statement, statement.Validate()
}

func newProvenance(ctx context.Context, r *release.Release) (*slsa.Provenance, error) {
	goVersion, err := buildGoVersion(ctx, r)
	if err != nil {
		return nil, err
	}
	platforms := []string{}
	for _, p := range r.Platforms {
		platforms = append(platforms, p.String())
	}
	external, err := structpb.NewStruct(map[string]any{
		"version": "v" + r.Version, "platforms": strings.Join(platforms, ","), "unreleased": r.Unreleased,
	})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"goVersion": goVersion, "cgo": false})
	if err != nil {
		return nil, err
	}
	provenance := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:          buildType,
			ExternalParameters: external,
			InternalParameters: internal,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{
				Uri:    "git+" + repository + "@refs/tags/v" + r.Version,
				Digest: map[string]string{"gitCommit": r.Commit},
			}},
		},
		RunDetails: &slsa.RunDetails{
			Builder: &slsa.Builder{Id: builderID, Version: map[string]string{"go": goVersion}},
		},
	}
	return provenance, provenance.Validate()
}

// buildGoVersion returns the version of the go command that builds r, for example "go1.26.8".
func buildGoVersion(ctx context.Context, r *release.Release) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = r.Source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Source is what a release was made from: enough to make it once more.
type Source struct {
	Version    string // with "v"
	Commit     string
	Platforms  string // OS/ARCH, separated by commas
	Unreleased bool   // the notes are those of the changelog's section "Unreleased"
	GoVersion  string
}

// ReadSource returns what a statement's provenance names as the source.
func ReadSource(statement *intoto.Statement) (Source, error) {
	text, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return Source{}, err
	}
	provenance := &slsa.Provenance{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, provenance); err != nil {
		return Source{}, fmt.Errorf("the statement holds no SLSA provenance: %w", err)
	}
	definition := provenance.GetBuildDefinition()
	external := definition.GetExternalParameters().GetFields()
	source := Source{
		Version:    external["version"].GetStringValue(),
		Platforms:  external["platforms"].GetStringValue(),
		Unreleased: external["unreleased"].GetBoolValue(),
		GoVersion:  definition.GetInternalParameters().GetFields()["goVersion"].GetStringValue(),
	}
	for _, dependency := range definition.GetResolvedDependencies() {
		if commit := dependency.GetDigest()["gitCommit"]; commit != "" {
			source.Commit = commit
		}
	}
	if source.Version == "" || source.Commit == "" {
		return Source{}, errors.New("the provenance names no version or no source commit")
	}
	return source, nil
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

// readJWKS sets field to the public keys of a file, or of standard input for "-", and the field
// issuer, unless it is set, to that of a discovery document before the keys. They are checked here,
// so that a private key is not sent.
func (f *fieldFlags) readJWKS(fields map[string]any, field, flag, path string) error {
	from := f.console.in
	if path != "-" {
		opened, err := os.Open(path)
		if err != nil {
			return cli.Usagef("%s: %v", flag, err)
		}
		defer func() { _ = opened.Close() }()
		from = opened
	} else if f.file == "-" {
		return cli.Usagef("--file and %s both read standard input; give a file to one of them", flag)
	}
	raw, err := io.ReadAll(io.LimitReader(from, account.MaxKeySet+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", flag, err)
	}
	const remedy = "give what `kubectl get --raw /openid/v1/jwks` prints"
	issuer, raw := cutDiscovery(raw)
	switch {
	case len(raw) == 0:
		return cli.Usagef("%s %q: is empty; %s, and look whether that command failed", flag, path, remedy)
	case len(raw) > account.MaxKeySet:
		return cli.Usagef("%s %q: has more than 64 KiB; %s", flag, path, remedy)
	case raw[0] == '<':
		return cli.Usagef("%s %q: is HTML or XML, such as the page of a proxy or a sign-in; %s", flag, path, remedy)
	case bytes.HasPrefix(raw, []byte("-----BEGIN")):
		return cli.Usagef("%s %q: is PEM; %s", flag, path, remedy)
	case bytes.Contains(raw, []byte(`"jwks_uri"`)):
		return cli.Usagef("%s %q: is the discovery document, which only names the keys' address; after it, %s", flag,
			path, remedy)
	}
	keys, err := account.ParseKeySet(raw)
	if err != nil {
		return cli.Usagef("%s %q: %v", flag, path, err)
	}
	fields[field] = keys
	if issuer != "" && fields["issuer"] == nil {
		fields["issuer"] = issuer
	}
	return nil
}

// cutDiscovery returns the issuer of a cluster's discovery document and what follows it; "" and all
// of raw when nothing follows, or raw begins with something else.
func cutDiscovery(raw []byte) (issuer string, rest []byte) {
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	raw = bytes.TrimSpace(raw)
	d := json.NewDecoder(bytes.NewReader(raw))
	if d.Decode(&discovery) != nil || discovery.Issuer == "" || !d.More() {
		return "", raw
	}
	return discovery.Issuer, bytes.TrimSpace(raw[d.InputOffset():])
}

// update adds to the fields of a change what the flags say about keys and subjects.
func (f *clusterFlags) update(
	ctx context.Context, api *apiclient.Client, in *fieldFlags, id string, fields map[string]any,
) error {
	if f.jwksFile == "-" && f.addJWKSFile == "-" {
		return cli.Usagef("--jwks-file and --add-jwks-file both read standard input; give one of them")
	}
	for _, given := range []struct{ flag, path, field string }{
		{"--jwks-file", f.jwksFile, "jwks"}, {"--add-jwks-file", f.addJWKSFile, "add_jwks"},
	} {
		if given.path == "" {
			continue
		}
		if err := in.readJWKS(fields, given.field, given.flag, given.path); err != nil {
			return err
		}
	}
	if len(f.removeKeys) > 0 {
		fields["remove_keys"] = f.removeKeys
	}
	return f.updateSubjects(ctx, api, id, fields)
}

// updateSubjects adds to the fields of a change what the flags say about subjects.
func (f *clusterFlags) updateSubjects(
	ctx context.Context, api *apiclient.Client, id string, fields map[string]any,
) error {
	changes := len(f.resetUIDs)+len(f.addSubjects) > 0
	switch {
	case len(f.subjects) > 0 && changes:
		return cli.Usagef("--subject replaces all subjects; it does not go with --add-subject and --reset-uid")
	case len(f.acl) > 0 && len(f.subjects)+len(f.addSubjects) == 0:
		return cli.Usagef("--acl goes with --subject or --add-subject, which names the ServiceAccount of the exporter")
	}
	given, err := parseSubjects(append(f.subjects, f.addSubjects...), f.acl)
	if err != nil {
		return err
	}
	if changes {
		now, err := api.Cluster(ctx, id)
		if err != nil {
			return err
		}
		kept, err := f.resetSubjects(now.Subjects)
		if err != nil {
			return err
		}
		given = append(kept, given...)
	}
	if len(given) > 0 {
		fields["subjects"] = given
	}
	return nil
}

// resetSubjects returns the subjects as they are, with the UIDs of --reset-uid removed.
func (f *clusterFlags) resetSubjects(now []account.ClusterSubject) ([]account.SubjectPatch, error) {
	all, found := []account.SubjectPatch{}, map[string]bool{}
	for _, s := range now {
		name := s.Namespace + "/" + s.ServiceAccount
		one := account.SubjectPatch{Namespace: s.Namespace, ServiceAccount: s.ServiceAccount, Role: s.Role}
		if slices.Contains(f.resetUIDs, name) {
			one.UID, found[name] = new(string), true
		}
		all = append(all, one)
	}
	for _, name := range f.resetUIDs {
		if !found[name] {
			return nil, cli.Usagef("--reset-uid %q: the cluster has no such subject; give NAMESPACE/NAME as "+
				"`fairlead api clusters get` lists them", name)
		}
	}
	return all, nil
}

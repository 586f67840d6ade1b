// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// sealClusters is the command fairlead seal clusters.
type sealClusters struct {
	sealFlags
	name, issuer, jwksFile, serviceAccount string // of the cluster that is added

	remove, life, out string
}

func newSealClusters(c console) *cobra.Command {
	var s sealClusters
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "Sign which clusters' ServiceAccount tokens prove callers",
		Long: `Sign a file for agents, --seal-clusters, that says by which keys they verify the tokens of clusters'
forwarders (binding.sealCallerToken of the chart), so that clusters need no certificate. A cluster is added, replaced
or removed by its name, by which policies know it; without --name and --remove, what is there is signed again. Agents
take a newer file from its place while they run, and none that is older or has ended.`,
		Example: `  { kubectl get --raw /.well-known/openid-configuration &&
    kubectl get --raw /openid/v1/jwks; } | fairlead seal clusters --name cluster-1 --jwks-file -
  fairlead seal clusters --remove cluster-2
  fairlead seal clusters --for 14d`,
		Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error { return s.run(c) },
	}
	f := cmd.Flags()
	f.StringVar(&s.name, "name", "", "`NAME` of a cluster to add or replace: a DNS label")
	f.StringVar(&s.jwksFile, "jwks-file", "", "`FILE` with its public keys, as `kubectl get --raw /openid/v1/jwks` "+
		"prints them, after its discovery document or alone; - for standard input")
	f.StringVar(&s.issuer, "issuer", "", "`URL` of its tokens' issuer; default that of the discovery document, or "+
		account.DefaultIssuer)
	f.StringVar(&s.serviceAccount, "service-account", "fairlead/fairlead-operator-forwarder",
		"`NAMESPACE/NAME` of its forwarders' ServiceAccount: any pod can get a token of its own")
	f.StringVar(&s.remove, "remove", "", "`NAME` of a cluster to remove")
	f.StringVar(&s.life, "for", "30d", "`TIME` until the file ends, from 24h to 30d")
	f.StringVar(&s.out, "out", "", "`FILE` to make or change; default clusters.jws beside the roots")
	s.addDir(cmd, c)
	return cmd
}

func (s *sealClusters) run(c console) error {
	life, err := parseDays(s.life)
	if err != nil {
		return err
	}
	root, err := s.readRoot()
	if err != nil {
		return err
	}
	if s.out == "" {
		s.out = filepath.Join(s.dir, "clusters.jws")
	}
	all, err := s.read(root)
	if err == nil {
		err = s.change(c, all)
	}
	if err != nil {
		return err
	}
	made := authority.File{Name: s.out, Mode: authority.Public}
	if made.Data, err = root.SignClusters(all, life, time.Now()); err != nil {
		return err
	}
	if err := made.Write(); err != nil {
		return err
	}
	for _, one := range all.Clusters {
		if _, err := fmt.Fprintf(c.out, "%s   %s   %s   %d keys\n", one.Name, one.Issuer, one.Subject,
			len(one.JWKS.Keys)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.out, "%q, version %d, ends at %s: give it to agents, --seal-clusters\n", s.out, all.Version,
		all.EndsAt.Format(time.RFC3339))
	return err
}

// read returns the clusters in the file, which may have ended, or be signed by the spare root; none
// without a file.
func (s *sealClusters) read(root *authority.Root) (*authority.Clusters, error) {
	text, err := authority.ReadFile(filepath.Join(s.dir, "authorities.pem"))
	if err != nil {
		return nil, cli.Usagef("%v: it has the certificates of the roots", err)
	}
	roots, err := authority.ParseAuthorities(string(text))
	if err != nil {
		return nil, cli.Usagef("authorities.pem: %v", err)
	}
	all, err := authority.ReadClusters(s.out, root.Account, roots)
	if errors.Is(err, fs.ErrNotExist) {
		return &authority.Clusters{}, nil
	} else if err != nil {
		return nil, cli.Usagef("%v: choose another file with --out", err)
	}
	return all, nil
}

// change does what the flags say.
func (s *sealClusters) change(c console, all *authority.Clusters) error {
	if s.remove != "" && !all.Remove(s.remove) {
		return cli.Usagef("--remove: %s has no cluster %q", s.out, s.remove)
	}
	if s.name == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(s.serviceAccount, "/")
	subject := account.ClusterSubject{Namespace: namespace, ServiceAccount: name}
	switch {
	case !account.ValidClusterID(namespace) || name == "" || strings.ContainsAny(name, "/: "):
		return cli.Usagef("--service-account %q: must be NAMESPACE/NAME", s.serviceAccount)
	case s.jwksFile == "":
		return cli.Usagef("--jwks-file is missing: kubectl get --raw /openid/v1/jwks | fairlead seal clusters --name NAME " +
			"--jwks-file -")
	}
	fields, in := map[string]any{}, fieldFlags{console: c}
	if err := in.readJWKS(fields, "jwks", "--jwks-file", s.jwksFile); err != nil {
		return err
	}
	discovered, _ := fields["issuer"].(string)
	one := authority.Cluster{Name: s.name, Subject: subject.Claim(),
		Issuer: cmp.Or(s.issuer, discovered, account.DefaultIssuer)}
	one.JWKS, _ = fields["jwks"].(account.KeySet)
	if err := all.Put(one); err != nil {
		return cli.Usagef("%v", err)
	}
	return nil
}

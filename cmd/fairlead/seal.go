// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func newSeal(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Make and sign the certificates of sealed endpoints",
		Long: `Make and sign the certificates of sealed endpoints, which are encrypted from the caller's cluster to the
agent: the service relays what it cannot read. Clusters accept an agent by a certificate that the owner of
the account has signed. These commands are the owner's part. They connect to nothing, but for log.`,
		Example: `  fairlead seal init --account ac-…                        # the owner, once
  fairlead seal request --out seal                         # at the agent, once
  fairlead seal sign --url 'tcp://*.demo:5432' tls.csr     # the owner, again before the certificate ends`,
	}
	cmd.AddCommand(newSealInit(c), newSealRequest(c), newSealSign(c), newSealClusters(c), newSealStatus(c),
		newSealLog(c))
	return cmd
}

// sealFlags are flags of several commands.
type sealFlags struct {
	dir, account, caller string
	urls                 []string
	force                bool
}

func (f *sealFlags) addDir(cmd *cobra.Command, c console) {
	config, _, _ := agentconfig.Path("", c.env) // without a home directory, the folder is in the working directory
	cmd.Flags().StringVar(&f.dir, "dir", filepath.Join(filepath.Dir(config), "seal"),
		"`FOLDER` of the roots, beside the config file")
}

func (f *sealFlags) addNames(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.urls, "url", nil,
		"`URL` of an endpoint, whose host's first label may be *; may be given again")
	cmd.Flags().StringVar(&f.caller, "caller", "",
		"`NAME` of a caller, such as a cluster's, in place of URLs: a DNS label")
}

// readRoot reads the root to sign with, and for how long.
func (f *sealFlags) readRoot(lifeText string) (*authority.Root, time.Duration, error) {
	life, err := parseDays(lifeText)
	if err != nil {
		return nil, 0, err
	}
	root, err := authority.ReadRoot(filepath.Join(f.dir, "root.crt"), filepath.Join(f.dir, "root.key"))
	if err != nil {
		err = cli.Usagef("%v: make roots with fairlead seal init, or name their folder with --dir", err)
	}
	return root, life, err
}

// names returns what --url and --caller name; neither has to be given.
func (f *sealFlags) names(accountID string) (authority.Names, error) {
	n := authority.Names{Account: accountID, Caller: f.caller}
	for _, text := range f.urls {
		u, err := sealed.ParsePattern(text)
		if err != nil {
			return n, cli.Usagef("--url: %v", err)
		}
		n.URLs = append(n.URLs, u)
	}
	if uris := n.URIs(); len(uris) > 0 && accountID == "" {
		return n, cli.Usagef("--account is missing: the account of what --url and --caller name")
	} else if _, err := authority.ParseNames(uris); err != nil {
		return n, cli.Usagef("--url, --caller or --account: %v", err)
	}
	return n, nil
}

func newSealInit(c console) *cobra.Command {
	var f sealFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the two roots of an account",
		Long: `Make two roots for the sealed endpoints of an account, and print what to do with them. Clusters trust
what either has signed: one is to use; the other is kept offline for the day when the first is lost or stolen.
Both end in 10 years, and sign for this account alone. Its id is what fairlead status prints.`,
		Example: "  fairlead seal init --account ac-06f0l2rj1qg4o3b5e6s7t8u9v0",
		Args:    cli.NoArguments,
		RunE:    func(*cobra.Command, []string) error { return sealInit(c, f) },
	}
	cmd.Flags().StringVar(&f.account, "account", "", "`ID` of the account, ac-…")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace roots that are there; what they have signed ends with them")
	f.addDir(cmd, c)
	return cmd
}

func sealInit(c console, f sealFlags) error {
	var files []authority.File
	var keys [2]string
	all := authority.File{Name: "authorities.pem", Mode: authority.Public}
	for i, name := range []string{"root", "spare"} {
		root, own, err := authority.NewRoot(f.account, name, time.Now())
		if err != nil {
			return err
		}
		keys[i] = authority.KeyOf(root)
		files, all.Data = append(files, own...), append(all.Data, own[1].Data...)
	}
	if err := authority.WriteFiles(f.dir, f.force, append(files, all)...); err != nil {
		return err
	}
	out := c.out
	if c.plugin {
		out = pluginWriter{out}
	}
	_, err := fmt.Fprintf(out, `Two roots of the account %[1]s, good for 10 years, are in %[2]s:

root.key, root.crt     %[3]s
                       to use: fairlead seal sign signs with it. Keep root.key on this machine alone.
spare.key, spare.crt   %[4]s
                       to keep: move spare.key offline now. Print its five lines, or copy it to a medium in a safe,
                       and delete it here. When root.key is lost or stolen, rename both to root.key and root.crt.
authorities.pem        both certificates, for clusters; no secret

In each cluster, add to helm upgrade:
  --set binding.sealAccount=%[1]s --set-file binding.sealAuthority="%[5]s"

Then sign the requests of agents:
  fairlead seal sign --url 'tcp://*.demo:5432' REQUEST.csr
`, f.account, f.dir, keys[0], keys[1], filepath.Join(f.dir, all.Name))
	return err
}

func newSealRequest(c console) *cobra.Command {
	var f sealFlags
	var out string
	cmd := &cobra.Command{
		Use:   "request --out FOLDER",
		Short: "Make a private key, and a request for its certificate",
		Long: `Make a private key, tls.key, and a request for its certificate, tls.csr, in a folder that only its owner
may enter. The key stays there. The request is no secret: the owner of the account signs it, again before
each certificate ends, with fairlead seal sign.

Without --url and --caller it asks for nothing, and the owner decides. With them it needs --account, too.`,
		Example: `  fairlead seal request --out seal
  fairlead seal request --out seal --account ac-06f0l2rj1qg4o3b5e6s7t8u9v0 --url tcp://db.demo:5432`,
		Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			names, err := f.names(f.account)
			if err != nil {
				return err
			}
			if out == "" {
				return cli.Usagef("give --out, the folder for tls.key and tls.csr")
			}
			files, err := authority.NewRequest(names, "tls")
			if err != nil {
				return err
			}
			if err := authority.WriteFiles(out, f.force, files...); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.out, "%q was made, and stays here\n%q is for the owner of the account to sign\n",
				filepath.Join(out, "tls.key"), filepath.Join(out, "tls.csr"))
			return err
		},
	}
	f.addNames(cmd)
	cmd.Flags().StringVar(&f.account, "account", "", "`ID` of the account of the names, ac-…")
	cmd.Flags().StringVar(&out, "out", "", "`FOLDER` for the two files; it is made if it is not there")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace a key that is there, whose certificate is of no use then")
	return cmd
}

func newSealSign(c console) *cobra.Command {
	var f sealFlags
	var life, out string
	cmd := &cobra.Command{
		Use:   "sign REQUEST.csr",
		Short: "Sign the request of an agent or a caller",
		Long: `Sign a request, and write its certificate. It is for what --url or --caller allow at most: a request for
more is refused, one for less gets what it asks for, one for nothing gets what is allowed.

An agent serves the URLs in its certificate; tcp://*.demo:5432 is every host of two labels that ends in .demo.
No certificate can be revoked, so let it end soon, and sign the request again before.`,
		Example: `  fairlead seal sign --url 'tcp://*.demo:5432' tls.csr
  fairlead seal sign --url tcp://db.demo:5432 --url tcp://mail.demo:25 --for 24h --out api.crt tls.csr
  fairlead seal sign --caller cluster-1 --for 30d tls.csr`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.Usagef("%s needs one request, as fairlead seal request makes it", cmd.CommandPath())
		},
		RunE: func(_ *cobra.Command, args []string) error { return sealSign(c, f, life, args[0], out) },
	}
	f.addNames(cmd)
	cmd.Flags().StringVar(&life, "for", "7d", "`TIME` until the certificate ends, from 24h to 30d")
	cmd.Flags().StringVar(&out, "out", "", "`FILE` for the certificate, which may hold an earlier one; default the "+
		"request's, ending in .crt")
	f.addDir(cmd, c)
	return cmd
}

func sealSign(c console, f sealFlags, lifeText, request, out string) error {
	root, life, err := f.readRoot(lifeText)
	if err != nil {
		return err
	}
	allowed, err := f.names(root.Account)
	if err != nil {
		return err
	}
	text, err := authority.ReadFile(request)
	if err != nil {
		return cli.Usagef("reading the request: %v", err)
	}
	made := authority.File{Name: out, Mode: authority.Public}
	if made.Data, err = root.Sign(text, allowed, life, time.Now()); err != nil {
		return cli.Usagef("the request %s: %v", request, err)
	}
	if out == "" {
		made.Name = strings.TrimSuffix(request, filepath.Ext(request)) + ".crt"
	}
	old, err := authority.ReadFile(made.Name)
	if !errors.Is(err, fs.ErrNotExist) && !bytes.HasPrefix(old, []byte("-----BEGIN CERTIFICATE-----")) {
		return cli.Usagef("%s exists and is no certificate: choose another file with --out", made.Name)
	}
	if err := made.Write(); err != nil {
		return err
	}
	return sealStatus(&apiCall{console: c, output: output{format: "table"}}, []string{made.Name})
}

func newSealClusters(c console) *cobra.Command {
	var f sealFlags
	var life string
	cmd := &cobra.Command{
		Use:   "clusters NAME[:NAMESPACE/SERVICEACCOUNT]=FILE...",
		Short: "Sign by which keys agents verify clusters' tokens",
		Long: `Sign by which keys agents verify the tokens of clusters' forwarders (binding.sealCallerToken):
clusters.jws, for --seal-clusters. Name all clusters, again before it ends: those left out are not known any
more. NAME is the caller's; FILE has discovery document and keys, - is standard input. A token counts if it is
the forwarders', by default fairlead/fairlead-operator-forwarder's: every pod can get one of its own.`,
		Example: `  { kubectl get --raw /.well-known/openid-configuration; kubectl get --raw /openid/v1/jwks; } >eu.json
  fairlead seal clusters --for 14d eu=eu.json us:ops/fairlead-forwarder=us.json`,
		RunE: func(_ *cobra.Command, args []string) error { return sealClusters(c, f, life, args) },
	}
	cmd.Flags().StringVar(&life, "for", "30d", "`TIME` until the file ends, from 24h to 30d")
	f.addDir(cmd, c)
	return cmd
}

func sealClusters(c console, f sealFlags, lifeText string, args []string) error {
	root, life, err := f.readRoot(lifeText)
	if len(args) == 0 {
		err = cli.Usagef("name the clusters, NAME=FILE: `fairlead seal clusters --help` has an example")
	}
	if err != nil {
		return err
	}
	all := make([]authority.Cluster, len(args))
	for i, arg := range args {
		name, file, _ := strings.Cut(arg, "=")
		name, of, _ := strings.Cut(name, ":")
		of = cmp.Or(of, "fairlead/fairlead-operator-forwarder")
		if !account.ValidClusterID(name) || strings.Count(of, "/") != 1 || file == "" {
			return cli.Usagef("%q: must be NAME=FILE or NAME:NAMESPACE/SERVICEACCOUNT=FILE, NAME a DNS label", arg)
		}
		fields, in := map[string]any{}, fieldFlags{console: c}
		if err := in.readJWKS(fields, "jwks", name, file); err != nil {
			return err
		}
		text, err := json.Marshal(fields)
		all[i] = authority.Cluster{Name: name, Issuer: account.DefaultIssuer,
			Subject: "system:serviceaccount:" + strings.Replace(of, "/", ":", 1)}
		if err := errors.Join(err, json.Unmarshal(text, &all[i])); err != nil {
			return err
		}
	}
	made, now := authority.File{Name: filepath.Join(f.dir, "clusters.jws"), Mode: authority.Public}, time.Now()
	if made.Data, err = root.SignClusters(all, life, now); err == nil {
		err = made.Write()
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%q is good until %s, for agents with --seal-clusters. A caller is\n", made.Name,
		now.Add(life).UTC().Format(time.RFC3339))
	for _, one := range all {
		text += fmt.Sprintf("  %s, by a token of %s from %s\n", one.Name, one.Subject, one.Issuer)
	}
	_, err = io.WriteString(c.out, text)
	return err
}

// parseDays reads days, such as 7d, or a duration, such as 36h, within the lives of certificates.
func parseDays(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, notDays := strconv.Atoi(strings.TrimSuffix(text, "d")); notDays == nil {
		d, err = time.Duration(max(0, min(days, 99)))*24*time.Hour, nil
	}
	if err != nil || d < authority.MinLife || d > authority.MaxLife {
		return 0, cli.Usagef("--for %q: must be from 24h to 30d, such as 7d or 36h", text)
	}
	return d, nil
}

// sealOf returns the identity by which the agent seals the connections of an endpoint; nil = it serves
// plain ones.
func sealOf(s *agentconfig.EndpointSpec, u account.EndpointURL, broken *fieldErrors) *sealed.Identity {
	switch {
	case s.Sealed == "" && s.SealCallers != "":
		broken.add(agentconfig.FieldSealCallers, s.SealCallers, "is for a sealed endpoint: give --sealed (sealed), too")
		return nil
	case s.SealClusters != "" && s.SealCallers == "":
		broken.add(agentconfig.FieldSealClusters, s.SealClusters, "is for --seal-callers (seal_callers): give it, too")
		return nil
	case s.Sealed == "":
		return nil
	case s.ReplacePoolPolicy:
		broken.add("replace_pool_policy", "true", "each agent of a sealed endpoint applies the policy of its own "+
			"file: leave it out, and give all of them the same file")
		return nil
	}
	identity, err := authority.OpenIdentity(s.Sealed, s.SealCallers, s.SealClusters)
	if err == nil {
		err = authority.CheckURL(s.Sealed, identity, u)
	}
	*broken = append(*broken, account.FieldsOf(err)...)
	return identity
}

// checkSealedPolicy checks the traffic policy of a sealed endpoint: the agent applies it.
func checkSealedPolicy(s *agentconfig.EndpointSpec, scheme string, broken *fieldErrors) {
	_, mistakes := trafficpolicy.Check(s.TrafficPolicy, trafficpolicy.Options{Scheme: scheme, Binding: s.Binding,
		Sealing: &trafficpolicy.Sealing{CallersProven: s.SealCallers != ""}})
	for _, p := range mistakes {
		broken.add("traffic_policy", p.Value, p.String())
	}
}

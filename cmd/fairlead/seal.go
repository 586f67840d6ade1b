// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
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
)

func newSeal(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "seal",
		Short: "Make and sign the certificates of sealed endpoints",
		Long: `Make and sign the certificates of sealed endpoints: connections to these are encrypted from the caller's
cluster to the agent, and the service relays what it cannot read. A cluster accepts an agent by a
certificate that the owner of the account has signed. These commands are the owner's part; they connect
to nothing, and the service never gets a key.`,
		Example: `  fairlead seal init --account ac-…                    # the owner, once
  fairlead seal request --out seal                     # at the agent, once
  fairlead seal sign --url 'http://*.demo' tls.csr     # the owner, again before the certificate ends
  fairlead seal status tls.crt`,
	}
	cmd.AddCommand(newSealInit(c), newSealRequest(c), newSealSign(c), newSealStatus(c))
	return cmd
}

// sealFlags are flags of several commands.
type sealFlags struct {
	dir, account, caller string
	urls                 []string
	force                bool
}

func (f *sealFlags) addDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "",
		"`FOLDER` of the roots; default seal beside the config file, ~/.config/fairlead/seal")
}

func (f *sealFlags) addNames(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.urls, "url", nil,
		"`URL` of an endpoint, whose host's first label may be *; may be given again")
	cmd.Flags().StringVar(&f.caller, "caller", "",
		"`NAME` of a caller, such as a cluster's, in place of URLs: a DNS label")
}

// rootsDir returns the folder of the roots.
func (f *sealFlags) rootsDir(c console) (string, error) {
	if f.dir != "" {
		return f.dir, nil
	}
	config, _, err := agentconfig.Path("", c.env)
	if err != nil {
		return "", cli.Usagef("%v; or give --dir", err)
	}
	return filepath.Join(filepath.Dir(config), "seal"), nil
}

// names returns what --url and --caller name; neither has to be given.
func (f *sealFlags) names(accountID string) (names authority.Names, err error) {
	switch {
	case f.caller != "" && len(f.urls) > 0:
		return names, cli.Usagef("--url and --caller: give one of them; agents and callers have certificates of their own")
	case f.caller != "" && !account.ValidClusterID(f.caller):
		return names, cli.Usagef("--caller %q: must be a DNS label of a-z, 0-9 and '-'", f.caller)
	}
	names = authority.Names{Account: accountID, Caller: f.caller}
	for _, text := range f.urls {
		u, err := sealed.ParsePattern(text)
		if err != nil {
			return names, cli.Usagef("--url: %v", err)
		}
		names.URLs = append(names.URLs, u)
	}
	return names, nil
}

const accountHint = "give --account ac-…, the id of the account, which `fairlead status` asks the service for"

func newSealInit(c console) *cobra.Command {
	var f sealFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the two roots of an account",
		Long: `Make two roots for the sealed endpoints of an account, and print what to do with them. Clusters trust what
either has signed: one is to use; the other is kept offline for the day when the first is lost or stolen.
Both end in 10 years, and sign for this account alone, whose id the service is not asked for.`,
		Example: `  fairlead seal init --account ac-06f0l2rj1qg4o3b5e6s7t8u9v0
  fairlead seal init --account ac-06f0l2rj1qg4o3b5e6s7t8u9v0 --dir /media/owner/seal`,
		Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if f.account == "" {
				return cli.Usagef("%s", accountHint)
			}
			return sealInit(c, f)
		},
	}
	cmd.Flags().StringVar(&f.account, "account", "", "`ID` of the account, ac-…")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace roots that are there; what they have signed ends with them")
	f.addDir(cmd)
	return cmd
}

func sealInit(c console, f sealFlags) error {
	dir, err := f.rootsDir(c)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return err
	}
	var files []authority.File
	var keys [2]string
	all := authority.File{Name: "authorities.pem", Mode: authority.Public}
	for i, name := range []string{"root", "spare"} {
		root, err := authority.NewRoot(f.account, name, time.Now())
		if err != nil {
			return err
		}
		own, err := root.Files(name)
		if err != nil {
			return err
		}
		keys[i] = authority.KeyOf(root.Certificate)
		files, all.Data = append(files, own...), append(all.Data, own[1].Data...)
	}
	if err := authority.WriteFiles(dir, f.force, append(files, all)...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, `Two roots of the account %[1]s, good for 10 years, are in %[2]s:

root.key, root.crt     %[3]s
                       to use: fairlead seal sign signs with it. Keep root.key on this machine alone.
spare.key, spare.crt   %[4]s
                       to keep: move spare.key offline now. Print its five lines, or copy it to a medium in a safe,
                       and delete it here. It signs when root.key is lost or stolen.
authorities.pem        both certificates, for clusters; no secret

In each cluster, add to helm upgrade:
  --set binding.sealAccount=%[1]s --set-file binding.sealAuthority=%[5]q

Then sign the requests of agents:
  fairlead seal sign --url 'http://*.demo' REQUEST.csr
`, f.account, dir, keys[0], keys[1], filepath.Join(dir, all.Name))
	return err
}

func newSealRequest(c console) *cobra.Command {
	var f sealFlags
	var out string
	cmd := &cobra.Command{
		Use:   "request --out FOLDER",
		Short: "Make a private key, and a request for its certificate",
		Long: `Make a private key, tls.key, and a request for its certificate, tls.csr, in a folder that only its owner may
enter. The key stays there. The request is no secret: the owner of the account signs it with fairlead seal
sign, again before each certificate ends.

Without --url and --caller it asks for nothing, and the owner decides. With them it needs --account, too.`,
		Example: `  fairlead seal request --out seal
  fairlead seal request --account ac-06f0l2rj1qg4o3b5e6s7t8u9v0 --url http://api.demo --url tcp://db.demo:5432 --out seal`,
		Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			names, err := f.names(f.account)
			switch {
			case err != nil:
				return err
			case out == "":
				return cli.Usagef("give --out, the folder for tls.key and tls.csr")
			case f.account == "" && names.String() != "":
				return cli.Usagef("names are of an account: %s, or ask for no names", accountHint)
			case f.account != "" && !account.ValidID(account.PrefixAccount, f.account):
				return cli.Usagef("--account %q: must be the id of an account: ac- and 26 characters", f.account)
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
	var spare bool
	cmd := &cobra.Command{
		Use:   "sign REQUEST.csr",
		Short: "Sign the request of an agent or a caller",
		Long: `Sign a request, and write its certificate. It is for what --url or --caller allow at most: a request for
more is refused, one for less gets what it asks for, one for nothing gets what is allowed.

An agent serves the URLs in its certificate; http://*.demo is every host of two labels that ends in .demo.
No certificate can be revoked, so let it end soon, and sign the request again before.`,
		Example: `  fairlead seal sign --url 'http://*.demo' tls.csr
  fairlead seal sign --url http://api.demo --url tcp://db.demo:5432 --for 24h --out api.crt tls.csr
  fairlead seal sign --caller cluster-1 --for 30d tls.csr`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.Usagef("%s needs one request, as fairlead seal request makes it", cmd.CommandPath())
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := "root"
			if spare {
				name = "spare"
			}
			return sealSign(c, f, name, life, args[0], out)
		},
	}
	f.addNames(cmd)
	cmd.Flags().StringVar(&life, "for", "7d", "`TIME` until the certificate ends, from 24h to 30d")
	cmd.Flags().StringVar(&out, "out", "", "`FILE` for the certificate, which may hold an earlier one; default that of the "+
		"request, ending in .crt")
	cmd.Flags().BoolVar(&spare, "spare", false, "sign with spare.key, which was put back beside spare.crt")
	f.addDir(cmd)
	return cmd
}

func sealSign(c console, f sealFlags, rootName, lifeText, request, out string) error {
	life, err := parseDays(lifeText)
	if err != nil {
		return err
	}
	dir, err := f.rootsDir(c)
	if err != nil {
		return err
	}
	root, err := authority.ReadRoot(filepath.Join(dir, rootName+".crt"), filepath.Join(dir, rootName+".key"))
	if err != nil {
		return cli.Usagef("%v: make roots with fairlead seal init, or name their folder with --dir", err)
	}
	allowed, err := f.names(root.Account)
	if err != nil {
		return err
	}
	if allowed.String() == "" {
		return cli.Usagef("give --url or --caller: what the certificate may be for")
	}
	text, err := authority.ReadFile(request)
	if err != nil {
		return cli.Usagef("reading the request %s: %v", request, err)
	}
	made := authority.File{Name: out, Mode: authority.Public}
	if made.Data, err = root.Sign(text, allowed, life, time.Now()); err != nil {
		return cli.Usagef("the request %s: %v", request, err)
	}
	if out == "" {
		made.Name = strings.TrimSuffix(request, filepath.Ext(request)) + ".crt"
	}
	old, err := authority.ReadFile(made.Name)
	if !errors.Is(err, fs.ErrNotExist) && !bytes.HasPrefix(old, []byte("-----BEGIN "+authority.TypeCertificate)) {
		return cli.Usagef("%s exists and is no certificate: choose another file with --out", made.Name)
	}
	if err := made.Write(); err != nil {
		return err
	}
	return sealStatus(c, []string{made.Name}, "table")
}

// parseDays reads days, such as 7d, or a duration, such as 36h, within the lives of certificates.
func parseDays(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, 99)) * 24 * time.Hour
	}
	if err != nil || d < authority.MinLife || d > authority.MaxLife {
		return 0, cli.Usagef("--for %q: must be from 24h to 30d, such as 7d or 36h", text)
	}
	return d, nil
}

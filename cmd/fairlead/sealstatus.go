// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/doctor"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// sealBlock is one block of a PEM file, as `fairlead seal status -o json` prints it.
type sealBlock struct {
	File    string     `json:"file"`
	Kind    string     `json:"kind"`
	Account string     `json:"account,omitempty"`
	Names   []string   `json:"names,omitempty"` // Names are URLs, or caller NAME.
	Key     string     `json:"key"`
	Issuer  string     `json:"issuer,omitempty"`
	EndsAt  *time.Time `json:"ends_at,omitempty"`
	EndsIn  string     `json:"ends_in,omitempty"`
	OK      bool       `json:"ok"`
	Problem string     `json:"problem,omitempty"` // Problem is one to come as long as OK.
}

var sealBlocks = resource.Resource{Noun: "file",
	Columns: []resource.Column{{Heading: "FILE", Field: "file"}, {Heading: "KIND", Field: "kind"},
		{Heading: "NAMES", Field: "names"}, {Heading: "ENDS IN", Field: "ends_in"}, {Heading: "KEY", Field: "key"}},
	Wide: []resource.Column{{Heading: "ACCOUNT", Field: "account"}, {Heading: "ISSUER", Field: "issuer"}}}

func newSealStatus(c console) *cobra.Command {
	var f sealFlags
	a := &apiCall{console: c}
	cmd := &cobra.Command{
		Use:   "status [FILE...]",
		Short: "Show what certificates, requests and keys are, and when they end",
		Long: `Show what files hold: authorities, certificates, requests, private keys; without files, the roots'. What
is of one key has one fingerprint. Less than a third of a certificate's life is worth a warning.

Exit codes: 0 when all is of use, 1 when something has ended or is of no use, 2 when a file cannot be read.`,
		Example: `  fairlead seal status
  fairlead seal status -o json seal/tls.crt | jq -r '.[0].ends_at'`,
		RunE: func(_ *cobra.Command, files []string) error {
			if !slices.Contains([]string{"table", "wide", "json"}, a.format) {
				return cli.Usagef("--output %q: must be table, wide or json", a.format)
			}
			if len(files) == 0 {
				if files, _ = filepath.Glob(filepath.Join(f.dir, "*.[ckp]*")); len(files) == 0 {
					return cli.Usagef("there are no roots in %s: run fairlead seal init, or give files", f.dir)
				}
			}
			return sealStatus(a, files)
		},
	}
	cmd.Flags().StringVarP(&a.format, "output", "o", "table", "table, wide or json")
	cli.CompleteValues(cmd, "output", "table", "wide", "json")
	f.addDir(cmd, c)
	return cmd
}

// sealStatus prints what files hold, and warnings.
func sealStatus(a *apiCall, files []string) (err error) {
	all, broken := []json.RawMessage{}, false
	for _, file := range files {
		blocks, unreadable := readSealFile(file)
		if unreadable != nil {
			err = errors.Join(err, cli.Usagef("%v", unreadable))
		}
		for _, b := range blocks {
			raw, _ := json.Marshal(b) // always succeeds for its types
			all = append(all, raw)
			if b.Problem != "" {
				_, _ = fmt.Fprintf(a.console.err, "fairlead: warning: %s\n", screen.Escape(file+": "+b.Problem))
			}
			broken = broken || !b.OK
		}
	}
	if err == nil && broken {
		err = errBroken
	}
	return errors.Join(err, a.printList(sealBlocks, all))
}

// readSealFile returns what the blocks of a PEM file are.
func readSealFile(file string) (all []sealBlock, err error) {
	text, err := authority.ReadFile(file)
	for block, rest := pem.Decode(text); err == nil && block != nil; block, rest = pem.Decode(rest) {
		b := sealBlock{File: file}
		if err = b.read(block.Type, block.Bytes); err != nil {
			return all, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, b)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: it holds no PEM certificate, request or private key", file)
	}
	return all, err
}

func (b *sealBlock) read(blockType string, der []byte) (err error) {
	var problem error
	var public any
	switch blockType {
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		now := time.Now()
		b.Kind, b.Account, problem = "authority", authority.RootAccount(c), authority.CheckDates(c, now)
		if !c.IsCA {
			_ = b.setNames("certificate", c.URIs) // CheckLeaf has its error
			problem = authority.CheckLeaf(c, now)
		}
		b.Issuer, b.EndsAt, public = c.Issuer.CommonName, &c.NotAfter, c.PublicKey
		b.EndsIn = fmt.Sprintf("%.1f days", max(0, c.NotAfter.Sub(now).Hours()/24))
		if soon := authority.CheckLife(c, now); soon != nil {
			b.Problem = soon.Error()
		}
	case "CERTIFICATE REQUEST":
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			return err
		}
		problem, public = errors.Join(b.setNames("request", csr.URIs), csr.CheckSignature()), csr.PublicKey
	default: // a private key, or nothing that is known
		key, _ := x509.ParsePKCS8PrivateKey(der)
		signer, ok := key.(crypto.Signer)
		if !ok {
			return fmt.Errorf("%q is no certificate, request or private key (PKCS #8)", blockType)
		}
		b.Kind, public = "private key", signer.Public()
	}
	if b.OK = problem == nil; !b.OK {
		b.Problem = problem.Error()
	}
	der, err = x509.MarshalPKIXPublicKey(public)
	b.Key = sealed.FormatKey(sha256.Sum256(der))
	return err
}

// setNames sets the kind, and what URIs name, which all have to be names of sealed endpoints or of a
// caller.
func (b *sealBlock) setNames(kind string, uris []*url.URL) error {
	names, err := authority.ParseNames(uris)
	b.Kind, b.Account = kind, names.Account
	if names.Account != "" {
		b.Names = strings.Split(names.String(), ", ")
	}
	return err
}

func newSealLog(c console) *cobra.Command {
	d := &diagnose{console: c}
	cmd := &cobra.Command{
		Use:   "log URL",
		Short: "Compare the keys that the service announces with those that a cluster trusts",
		Long: `Show by which keys the service says that the endpoints of a URL are sealed, and since when, and compare
them with what a cluster trusts, which is asked through your own kubectl.

Exit codes: 0 when they agree, 1 when they do not or it is not known, 2 for wrong usage.`,
		Example: `  fairlead seal log tcp://db.demo:5432
  fairlead seal log tcp://db.demo:5432 --context staging -o json | jq .ok`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return d.logSeals(cmd.Context(), args[0]) },
	}
	d.addSources(cmd)
	return cmd
}

func (d *diagnose) logSeals(ctx context.Context, arg string) error {
	_, err := account.ParseEndpointURL(arg)
	if err = cmp.Or(err, d.parse([]string{arg})); err != nil {
		return err
	}
	client, err := accountClient(d.console, d.settings, d.apiKeyFile, "fairlead seal log")
	switch {
	case err != nil:
		return err
	case client == nil:
		return cli.Usagef("the account is asked with an API key: run fairlead login, or give --api-key-file")
	}
	defer client.CloseIdleConnections()
	d.o.Account, d.o.Kubectl = accountEndpoints{client}, doctor.ExecRunner("kubectl")
	found, report := doctor.CheckSeal(ctx, d.o)
	hop := &report.Hops[0]
	for i := range found {
		e, change := &found[i], account.AuditEvent{OccurredAt: found[i].CreatedAt}
		last, err := client.NewestAuditEvents(ctx,
			account.AuditFilter{Type: account.AuditSealChanged, ObjectID: e.ID}, 1)
		if err == nil && len(last.Events) > 0 {
			err = json.Unmarshal(last.Events[0], &change)
		}
		if err != nil {
			return err
		}
		*hop = hop.With(fmt.Sprintf("%s, %s: %s since %s", e.ID, e.Status, cmp.Or(e.SealKey, "no key"),
			change.OccurredAt.UTC().Format(time.RFC3339)))
	}
	d.verbose = true
	if err = d.print(report); err == nil && hop.Status != path.OK {
		err = errBroken
	}
	return err
}

// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// sealBlock is one block of a PEM file, as `fairlead seal status -o json` prints it.
type sealBlock struct {
	File    string     `json:"file"`
	Kind    string     `json:"kind"`
	Account string     `json:"account,omitempty"`
	URLs    []string   `json:"urls,omitempty"`
	Caller  string     `json:"caller,omitempty"`
	Key     string     `json:"key"`
	Issuer  string     `json:"issuer,omitempty"`
	EndsAt  *time.Time `json:"ends_at,omitempty"`
	OK      bool       `json:"ok"`
	Problem string     `json:"problem,omitempty"` // Problem is one to come as long as OK.
}

func newSealStatus(c console) *cobra.Command {
	var f sealFlags
	var output string
	cmd := &cobra.Command{
		Use:   "status [FILE...]",
		Short: "Show what certificates, requests and keys are, and when they end",
		Long: `Show what files hold: authorities, certificates of endpoints and callers, requests, private keys. What is of
one key has the same fingerprint. Without files, show those of the roots. There is a warning when less than
a third of a certificate's life is left.

Exit codes: 0 when all is of use, 1 when something has ended or is of no use, 2 when a file cannot be read.`,
		Example: `  fairlead seal status
  fairlead seal status seal/tls.crt seal/tls.key
  fairlead seal status -o json tls.crt | jq -r '.[0].ends_at'`,
		RunE: func(_ *cobra.Command, files []string) error {
			if output != "table" && output != "json" {
				return cli.Usagef("--output %q: must be table or json", output)
			}
			if len(files) == 0 {
				dir, err := f.rootsDir(c)
				if err != nil {
					return err
				}
				if files, _ = filepath.Glob(filepath.Join(dir, "*.*")); len(files) == 0 {
					return cli.Usagef("there are no roots in %s: make them with fairlead seal init, or give files", dir)
				}
			}
			return sealStatus(c, files, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cli.CompleteValues(cmd, "output", "table", "json")
	f.addDir(cmd)
	return cmd
}

func sealStatus(c console, files []string, output string) error {
	all := []sealBlock{}
	var unreadable, err error
	for _, file := range files {
		blocks, err := readSealFile(file)
		all = append(all, blocks...)
		if err != nil {
			unreadable = errors.Join(unreadable, cli.Usagef("reading %s: %v", file, err))
		}
	}
	if output == "json" {
		err = cli.WriteJSON(c.out, all)
	} else {
		_, err = io.WriteString(c.out, sealTable(all))
	}
	switch {
	case err != nil:
		return fmt.Errorf("writing the status: %w", err)
	case unreadable == nil && slices.ContainsFunc(all, func(b sealBlock) bool { return !b.OK }):
		return errBroken
	}
	return asUsageErrors(unreadable)
}

// readSealFile returns what the blocks of a PEM file are.
func readSealFile(file string) (all []sealBlock, err error) {
	text, err := authority.ReadFile(file)
	for block, rest := pem.Decode(text); err == nil && block != nil; block, rest = pem.Decode(rest) {
		b := sealBlock{File: file}
		if err = b.read(block.Type, block.Bytes); err == nil {
			all = append(all, b)
		}
	}
	if err == nil && len(all) == 0 {
		err = errors.New("it holds no PEM certificate, request or private key")
	}
	return all, err
}

func (b *sealBlock) read(blockType string, der []byte) (err error) {
	var problem error
	var public any
	switch blockType {
	case authority.TypeCertificate:
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		now := time.Now()
		b.Kind, b.Account, problem = "authority", authority.RootAccount(c), authority.CheckDates(c, now)
		if !c.IsCA {
			b.setNames("certificate", c.URIs)
			problem = authority.CheckLeaf(c, now)
		}
		b.Issuer, b.EndsAt, public = c.Issuer.CommonName, &c.NotAfter, c.PublicKey
		if c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3 {
			b.Problem = "less than a third of its life is left: sign its request again"
		}
	case authority.TypeRequest:
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			return err
		}
		problem, public = b.setNames("request", csr.URIs), csr.PublicKey
	default: // a private key, or nothing that is known
		key, _ := x509.ParsePKCS8PrivateKey(der)
		signer, ok := key.(crypto.Signer)
		if !ok {
			return fmt.Errorf("it holds %q, which is no certificate, request or private key (PKCS #8)", blockType)
		}
		b.Kind, public = "private key", signer.Public()
		if info, err := os.Stat(b.File); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			b.Problem = "other users may read it: chmod 600"
		}
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
	b.Kind, b.Account, b.Caller = kind, names.Account, names.Caller
	for _, u := range names.URLs {
		b.URLs = append(b.URLs, u.String())
	}
	return err
}

// sealTable has a paragraph for each block, whose rows are its fields.
func sealTable(all []sealBlock) string {
	var paragraphs []string
	for _, b := range all {
		ends, problem := "", "warning"
		if b.EndsAt != nil {
			ends = fmt.Sprintf("%s, in %.1f days", b.EndsAt.UTC().Format(time.RFC3339), time.Until(*b.EndsAt).Hours()/24)
		}
		if !b.OK {
			problem = "error"
		}
		rows := [][]string{{"file", b.File}, {"kind", b.Kind}, {"account", b.Account}, {"urls", strings.Join(b.URLs, ", ")},
			{"caller", b.Caller}, {"key", b.Key}, {"issuer", b.Issuer}, {"ends", ends}, {problem, b.Problem}}
		rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
		for _, row := range rows {
			row[1] = screen.Escape(row[1])
		}
		paragraphs = append(paragraphs, printable.Table(rows, 0))
	}
	return strings.Join(paragraphs, "\n")
}

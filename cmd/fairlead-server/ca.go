// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

const caHelp = `Print the certificate of the service's own authority in PEM form, for --ca-file of the agent and
api.caBundle of the chart, and that of the next one, if there is one. Fingerprints, for --ca-sha256, go
to standard error. The authority is replaced beside the running service, in this order:
  fairlead-server ca next       # agents and forwarders learn the next one
  fairlead-server ca show       # who has not been told?
  fairlead-server ca promote    # a day later: it is in service
  fairlead-server ca retire     # the one before is trusted no more`

func newCA(c console, at *dataLocation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Print the certificate of the service's own authority, or replace it",
		Long:  caHelp,
		Example: `  fairlead-server ca > ca.crt
  fairlead-server ca --data-dir /srv/fairlead > ca.crt
  fairlead-server ca --database-url-file /etc/fairlead/database-url > ca.crt`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := readAuthorities(cmd.Context(), at)
			if err != nil {
				return err
			}
			for _, ca := range []*x509.Certificate{all.Current, all.Next} {
				if ca == nil {
					continue
				}
				if _, err := c.out.Write(pki.EncodeCertificate(ca)); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(c.err, "ca-sha256 %s\n", trust.Fingerprint(ca)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.AddCommand(newCAShow(c, at), newCANext(c, at), newCAPromote(c, at), newCARetire(c, at))
	return cmd
}

// readAuthorities returns those of the server: of the database, else of the data directory, which a
// server with PostgreSQL imports at its first start.
func readAuthorities(ctx context.Context, at *dataLocation) (all pki.Authorities, err error) {
	databaseURL, err := at.databaseURL()
	if err != nil {
		return all, err
	}
	if databaseURL != "" {
		err = withStore(ctx, at, func(st *store.Store) (err error) {
			all, err = pki.NewRotation("", st).Read(ctx)
			return err
		})
	}
	if databaseURL == "" || errors.Is(err, fs.ErrNotExist) {
		all, err = pki.NewRotation(at.dataDir, nil).Read(ctx)
	}
	return all, explainNoAuthority(at, err)
}

func explainNoAuthority(at *dataLocation, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf(
		"there is no authority in %s: give the server's directory with --data-dir, or its database with "+
			"--database-url or --database-url-file, or start the server once without --tls-cert, which makes one",
		at.dataDir)
}

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

func newCA(c console, at *dataLocation) *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the certificate of the service's own authority",
		Long: `Print the certificate of the service's own authority in PEM form, for --ca-file of the agent and
api.caBundle of the chart. Its fingerprint, for --ca-sha256, goes to standard error.`,
		Example: `  fairlead-server ca > ca.crt
  fairlead-server ca --data-dir /srv/fairlead > ca.crt
  fairlead-server ca --database-url-file /etc/fairlead/database-url > ca.crt`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, err := readAuthority(cmd.Context(), at)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf(
					"there is no authority in %s: give the server's directory with --data-dir, or its database with "+
						"--database-url or --database-url-file, or start the server once without --tls-cert, which "+
						"makes one", at.dataDir)
			}
			if err != nil {
				return err
			}
			if _, err := c.out.Write(pki.EncodeCertificate(ca)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.err, "ca-sha256 %s\n", trust.Fingerprint(ca))
			return err
		},
	}
}

// readAuthority returns the authority of the server: that of the database, else that of the data
// directory, which a server with PostgreSQL imports at its first start. fs.ErrNotExist when neither
// has one.
func readAuthority(ctx context.Context, at *dataLocation) (*x509.Certificate, error) {
	databaseURL, err := at.databaseURL()
	if err != nil {
		return nil, err
	}
	if databaseURL == "" {
		return pki.LoadCA(at.dataDir)
	}
	var stored []byte
	err = withStore(ctx, at, func(st *store.Store) (err error) {
		stored, err = st.AuthorityCertificate(ctx)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case stored == nil:
		return pki.LoadCA(at.dataDir)
	}
	ca, err := x509.ParseCertificate(stored)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in the database: %w", err)
	}
	return ca, nil
}
